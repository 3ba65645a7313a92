"""Reward against responses, tokens and time in place of steps."""
