"""Figure 1: reward against steps."""
