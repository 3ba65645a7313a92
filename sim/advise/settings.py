"""The settings of the score model that advice is given for: what isn't known stands for a range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ada_bandit._types import FloatArray
from ada_bandit.objectives import objective_slope
from ada_bandit.score_model import NoiseRatio, ScoreModel

__all__ = ["MIDDLE", "NOISE", "OBJECTIVES", "Range", "Setting"]

NOISE = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Noise ratios that stand for one that isn't known: tiny models lie at the lower end, language models at the upper."""
MIDDLE = 3.0
"""The one of them at which tables are shown."""
OBJECTIVES = ("mean", "log", "pass@8")
"""Objectives that stand for one that isn't known."""


@dataclass(frozen=True)
class Setting:
    """One score model.

    Raises
    ------
    InputError
        If a part can't be used.
    """

    noise_ratio: NoiseRatio
    """Noise energy of a response's score over that of its signal; a pair for positives and negatives."""
    objective: str = "mean"
    """What is climbed."""
    transfer: float = 1.0
    """How much of an update's worth lies in other prompts: 1 where prompts are fresh, 0 where a small pool comes "
    "back."""
    update_cost: float = 0.0
    """Cost of a row in the update, in responses."""

    @cached_property
    def model(self) -> ScoreModel:
        """The score model."""
        return ScoreModel(self.noise_ratio, self.objective, self.update_cost, self.transfer)

    def slope(self, rates: FloatArray) -> FloatArray:
        """Return p q f'(p), ``[rate]``."""
        return objective_slope(self.objective, rates)

    @property
    def label(self) -> str:
        """The setting in words."""
        pos, neg = self.model.noise
        noise = f"{pos:g}" if pos == neg else f"{pos:g} and {neg:g}"
        # With fresh prompts every objective has the same best policy, and all ratios are the same.
        objective = "" if self.transfer == 1 else f", objective {self.objective}"
        cost = f", update cost {self.update_cost:g}" if self.update_cost else ""
        return f"noise ratio {noise}, {_prompts(self.transfer)}{objective}{cost}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return self.model.to_dict()


def _prompts(transfer: float) -> str:
    named = {1.0: "fresh prompts", 0.0: "a small pool that comes back"}
    return named.get(transfer, f"transfer {transfer:g}")


@dataclass(frozen=True)
class Range:
    """All settings that can't be ruled out, and the one at which tables are shown.

    Parameters are what the user knows; None stands for the range.

    Raises
    ------
    InputError
        If a value can't be used.
    """

    noise_ratio: NoiseRatio | None = None
    objective: str | None = None
    transfer: float | None = None
    update_cost: float = 0.0

    def __post_init__(self) -> None:
        # What can't be used is told before anything is computed.
        self.middle.model  # noqa: B018

    @property
    def middle(self) -> Setting:
        """The setting at which tables are shown: what is known, else noise ratio 3 and fresh prompts."""
        return Setting(
            MIDDLE if self.noise_ratio is None else self.noise_ratio,
            self.objective or OBJECTIVES[0],
            1.0 if self.transfer is None else self.transfer,
            self.update_cost,
        )

    @cached_property
    def worlds(self) -> tuple[tuple[float, str], ...]:
        """Transfer and objective of every case; with fresh prompts the objective makes no difference."""
        objectives = OBJECTIVES if self.objective is None else (self.objective,)
        transfers = (1.0, 0.0) if self.transfer is None else (self.transfer,)
        return tuple((t, each) for t in transfers for each in (objectives if t < 1 else objectives[:1]))

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Every setting, the noise ratio running fastest."""
        noise = NOISE if self.noise_ratio is None else (self.noise_ratio,)
        return tuple(
            Setting(ratio, objective, transfer, self.update_cost)
            for transfer, objective in self.worlds
            for ratio in noise
        )

    @property
    def label(self) -> str:
        """The range in words."""
        noise = self.middle.model.noise
        known = f"noise ratio {noise[0]:g}" + (f" and {noise[1]:g}" if noise[0] != noise[1] else "")
        parts = [f"noise ratios {NOISE[0]:g} to {NOISE[-1]:g}" if self.noise_ratio is None else known]
        if self.transfer is None:
            parts.append("fresh prompts and a small pool that comes back")
        else:
            parts.append(_prompts(self.transfer))
        if any(transfer < 1 for transfer, _ in self.worlds):
            names = list(dict.fromkeys(objective for _, objective in self.worlds))
            parts.append(f"objectives {', '.join(names)}" if len(names) > 1 else f"objective {names[0]}")
        parts.append(f"update cost {self.update_cost:g}")
        return "; ".join(parts)
