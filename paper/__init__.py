"""The tables and figures of arXiv 2510.04996, and what the paper doesn't have: a sweep, an analysis and claims each.

A program of the repository, run from its root as ``python -m paper``. Nothing is imported
here, so that the command line starts at once.
"""
