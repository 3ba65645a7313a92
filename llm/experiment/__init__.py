"""The study that compares arms: many runs of the trainer, their pass rates at equal steps, responses and tokens."""
