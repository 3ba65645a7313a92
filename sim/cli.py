"""The command line, ``python -m sim``: the command of every study.

Nothing heavy is imported: ``--help`` answers at once, and a study is imported when it runs.
"""

from __future__ import annotations

from ada_bandit.programs.lazy import command_of, lazy_app

__all__ = ["app", "installed_app"]

_STUDIES = (
    "init",
    "advise",
    "compare",
    "analyze",
    "show",
    "frontier",
    "when_adaptive_pays",
    "budget",
    "empirical_bayes",
    "replay",
    "learn",
    "log",
    "clock",
    "theory",
    "lab",
)

_COMMANDS = {study.replace("_", "-"): command_of(f"{__package__}.{study}.command", study) for study in _STUDIES}
_HELP = (
    "How many responses should each prompt get, and when may it stop? Compare sampling policies, exactly and by "
    "simulation."
)

app = lazy_app(_HELP, _COMMANDS)
"""The application as ``python -m sim`` runs it."""
installed_app = lazy_app(_HELP, _COMMANDS, completion=True)
"""The same for a command of its own name, which a shell can complete."""
