"""The trainer of language models, ``python -m llm``: it drives the same policies as the simulator."""
