"""Table 2: the cost of a step relative to GRPO."""
