"""What could be gained, split in three, over all settings and resamples; and where the answer turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ada_bandit._types import FloatArray
from ada_bandit.laws import Grid
from ada_bandit.policy import Policy
from sim.advise.candidates import GROUP, MOST, Best, adaptivity, best
from sim.advise.profiles import Laws, over, profile_of
from sim.advise.settings import NOISE, Range, Setting

__all__ = ["WORTH", "Gains", "Turn", "gains_of", "known_rates", "turns_of"]

WORTH = 1.1
"""Gain from which on a change is taken to be worth the effort."""
_TENTH = 0.1
_HALVINGS = 14


@dataclass(frozen=True, eq=False)
class Gains:
    """Factors of progress per response; every array is `[setting, law]`, the fitted law first."""

    settings: tuple[Setting, ...]
    """The settings."""
    base: FloatArray
    """What everything is held against, one round of as many responses, over now; 1 where that is what is run now."""
    advantages: FloatArray
    """The best advantages over that, at the same number of responses."""
    number: FloatArray
    """The best fixed number over that, each with its best advantages."""
    adaptivity: FloatArray
    """The best rounds over that."""
    one_by_one: FloatArray
    """The best policy without regard to rounds and groups, over the best fixed number."""
    knowledge: FloatArray
    """Known pass rates and the tenth of prompts that teaches most, over the best fixed number: a bound."""

    def pays(self) -> FloatArray:
        """Return whether adaptivity is worth the effort, `[setting, law]`."""
        return np.asarray(self.adaptivity >= WORTH)


def gains_of(
    now: Policy,
    base: Policy,
    prior: Grid,
    laws: Laws,
    settings: Sequence[Setting],
    done: Callable[[], None] | None = None,
) -> tuple[Gains, list[Best]]:
    """Split what could be gained, at every setting.

    The best policies are those of the fitted law; what they are worth is computed on all laws.

    Parameters
    ----------
    now
        The policy that is run now.
    base
        The policy of one round that everything is held against.
    prior, laws
        The fitted law, and it with its resamples.
    settings
        The settings.
    done
        Called after each of them.
    """
    n = base.budget.max_samples
    of_base, of_now = profile_of(base, laws.rates), profile_of(now, laws.rates)
    found: dict[str, list[FloatArray]] = {
        name: [] for name in ("now", "base", "same", "fixed", "rounds", "single", "known")
    }
    bests = []
    for setting in settings:
        policies = best(prior, setting, n)
        bests.append(policies)
        found["now"].append(of_now.efficiency(setting, laws))
        found["base"].append(of_base.efficiency(setting, laws))
        for name, policy in (
            ("same", policies.same_n),
            ("fixed", policies.fixed),
            ("rounds", policies.rounds),
            ("single", policies.one_by_one),
        ):
            found[name].append(profile_of(policy, laws.rates).efficiency(setting, laws))
        found["known"].append(known_rates(setting, laws))
        if done is not None:
            done()
    now_, base_, same, fixed, rounds, single, known = (np.array(each) for each in found.values())
    return (
        Gains(
            tuple(settings),
            over(base_, now_),
            over(same, base_),
            over(fixed, same),
            over(rounds, fixed),
            over(single, fixed),
            over(known, fixed),
        ),
        bests,
    )


def known_rates(setting: Setting, laws: Laws) -> FloatArray:
    """Return progress per response if pass rates were known and the best tenth of prompts were asked alone, ``[law]``.

    With p known, one response has R = k^2 (p q^2 / (q^2 + nu_pos) + q p^2 / (p^2 + nu_neg)), where
    k = (1 - t) p q f' + t E[p q f'], and a second response of the same prompt is worth less.
    """
    p, (nu_pos, nu_neg) = laws.rates, setting.model.noise
    slope = setting.slope(p)
    q = 1 - p
    pull = laws.mean(slope)
    kappa = (1 - setting.transfer) * slope + setting.transfer * pull[:, None]

    def share(side: FloatArray, noise: float) -> FloatArray:
        return np.divide(side**2, side**2 + noise, out=np.zeros(side.shape), where=side > 0)

    worth = kappa**2 * (p * share(q, nu_pos) + q * share(p, nu_neg))
    order = np.argsort(-worth, axis=1, kind="stable")
    weights = np.take_along_axis(laws.weights, order, axis=1)
    before = np.cumsum(weights, axis=1) - weights
    used = np.clip(_TENTH - before, 0, weights)
    total = used.sum(axis=1)
    best_tenth = (used * np.take_along_axis(worth, order, axis=1)).sum(axis=1) / total
    return np.asarray(best_tenth / (1 + setting.update_cost))


@dataclass(frozen=True)
class Turn:
    """A value at which the answer to adaptive or not turns."""

    quantity: str
    """``noise_ratio``, ``transfer`` or ``update_cost``."""
    value: float
    """The value; of a pair of noise ratios, the factor by which both are multiplied."""
    above: bool
    """Whether adaptive rounds are worth the effort above it; below it unless so."""
    setting: Setting
    """Everything else."""

    @property
    def others(self) -> str:
        """Everything else in words."""
        pair = self.quantity == "noise_ratio" and isinstance(self.setting.noise_ratio, tuple)
        parts = self.setting.label.split(", ")
        return ", ".join(parts if pair else [part for part in parts if not part.startswith(_OWN[self.quantity])])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "quantity": self.quantity,
            "value": self.value,
            "adaptive_pays": "above" if self.above else "below",
            "others": {key: value for key, value in self.setting.to_dict().items() if key != self.quantity},
        }


_OWN = {"noise_ratio": ("noise",), "transfer": ("fresh", "a small", "transfer"), "update_cost": ("update",)}


def turns_of(prior: Grid, choices: Range, n: int, gains: Gains) -> tuple[Turn, ...]:
    """Return where adaptive rounds begin or cease to be worth the effort, by halving between grid points.

    Over the noise ratio in every case of transfer and objective; over transfer and update cost at the middle setting.
    """
    rows = max(GROUP, min(n, MOST))
    return tuple(_turns(prior, choices, rows, gains))


def _turns(prior: Grid, choices: Range, rows: int, gains: Gains) -> Iterator[Turn]:
    def value(setting: Setting) -> float:
        return adaptivity(prior, setting, rows) - WORTH

    known = {setting: float(row[0]) - WORTH for setting, row in zip(gains.settings, gains.adaptivity, strict=True)}
    middle = choices.middle
    pair = isinstance(middle.noise_ratio, tuple)
    base = middle.model.noise
    noises = (0.1, 0.3, 1.0, 3.0, 10.0) if pair else NOISE

    for transfer, objective in choices.worlds:

        def at_noise(x: float, world: tuple[float, str] = (transfer, objective)) -> Setting:
            noise = (x * base[0], x * base[1]) if pair else x
            return replace(middle, noise_ratio=noise, transfer=world[0], objective=world[1])

        yield from _crossings("noise_ratio", noises, at_noise, value, known, at_noise(1.0) if pair else None)
    if choices.transfer is None:
        for objective in dict.fromkeys(objective for _, objective in choices.worlds):
            yield from _crossings(
                "transfer",
                (0.0, 0.25, 0.5, 0.75, 1.0),
                partial(_at_transfer, middle, objective),
                value,
                known,
                replace(middle, transfer=0.5, objective=objective),
            )
    costs = sorted({0.0, 0.5, 1.0, 2.0, 4.0, 8.0, choices.update_cost})
    yield from _crossings("update_cost", costs, lambda x: replace(middle, update_cost=x), value, known, middle)


def _at_transfer(setting: Setting, objective: str, transfer: float) -> Setting:
    return replace(setting, transfer=transfer, objective=objective)


def _crossings(
    quantity: str,
    grid: Sequence[float],
    at: Callable[[float], Setting],
    value: Callable[[Setting], float],
    known: dict[Setting, float],
    shown: Setting | None,
) -> Iterator[Turn]:
    """Give the points between neighbours of a grid at which the value changes its sign."""
    values = [known[at(x)] if at(x) in known else value(at(x)) for x in grid]
    for low, high, left, right in zip(grid, grid[1:], values, values[1:], strict=False):
        if not np.isfinite([left, right]).all() or (left >= 0) == (right >= 0):
            continue
        a, b, geometric = low, high, quantity == "noise_ratio"
        for _ in range(_HALVINGS):
            middle = float(np.sqrt(a * b)) if geometric else (a + b) / 2
            a, b = (middle, b) if (value(at(middle)) >= 0) == (left >= 0) else (a, middle)
        found = float(np.sqrt(a * b)) if geometric else (a + b) / 2
        yield Turn(quantity, found, right >= 0, shown or at(found))
