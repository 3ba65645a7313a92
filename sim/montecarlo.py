"""Monte Carlo of whole batches."""
