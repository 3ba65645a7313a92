"""Plug-ins for other people's trainers; nothing is imported until a module is asked for.

`ada_bandit.adapters.trl` is for TRL's ``GRPOTrainer``.
"""
