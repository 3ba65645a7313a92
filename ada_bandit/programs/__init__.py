"""What the command-line programs share: options, console, folders, figures, records, rollouts.

The library imports nothing from here. Modules import what is heavy (rich, matplotlib) when they need it.
"""
