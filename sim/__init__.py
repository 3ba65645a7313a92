"""The simulator: pass-rate laws from files and published curves, Monte Carlo, comparison, figures, command line.

A program of the repository, run from its root as ``python -m sim``. Nothing is imported here,
so that the command line starts at once.
"""
