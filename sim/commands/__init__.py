"""The commands of ``python -m sim``, one a module; nothing heavy is imported until a command runs."""
