"""The tables and figures of arXiv 2510.04996, one sweep and analysis each; nothing is here yet."""
