"""The command line, ``python -m llm``.

Nothing heavy is imported: ``--help`` answers at once, and a command is imported when it runs.
"""

from __future__ import annotations

from ada_bandit.programs.lazy import command_of, lazy_app

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "train": command_of("llm.commands.train", "train"),
    "experiment": command_of("llm.experiment.command", "experiment"),
    "predict": command_of("llm.experiment.predict_command", "predict_experiments"),
    "report": command_of("llm.experiment.report_command", "report"),
    "plot": command_of("llm.commands.plot", "plot"),
    "rollout": command_of("llm.commands.rollout", "rollout"),
    "eval": command_of("llm.commands.eval", "evaluate"),
    "probe": command_of("llm.probe.command", "probe"),
    "get-smollm2": command_of("llm.commands.get_smollm2", "get_smollm2"),
    "make-tiny": command_of("llm.commands.make_tiny", "make_tiny"),
}

app = lazy_app("Train language models with the policies of ada_bandit, and measure what they assume.", COMMANDS)
