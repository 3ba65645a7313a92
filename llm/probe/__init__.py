"""The study that holds the score model against measured scores."""
