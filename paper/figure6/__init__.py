"""Figure 6: moderate against hard prompts."""
