"""Figure 5: extra responses and unresolved prompts along training."""
