"""Figure 4: reward against entropy, and pass@k."""
