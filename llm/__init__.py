"""The trainer of language models that drives the same policies; nothing is here yet."""
