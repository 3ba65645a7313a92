"""Figure 3: reward against steps, in other settings."""
