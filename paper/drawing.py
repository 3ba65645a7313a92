"""What the figures share: a mark a rule, looks of what is no policy, and names within a panel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ada_bandit.programs.figures import DASHES, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = ["MARKS", "NEUTRAL", "name_within"]

MARKS: Mapping[str, str] = MappingProxyType({"grpo": "o", "pos": "^", "balance": "s"})
"""The mark of each rule, which tells rules apart where colours are lost."""

NEUTRAL: tuple[Mapping[str, Any], ...] = tuple(
    MappingProxyType({"color": colour, "linestyle": dashes})
    for colour, dashes in (("black", "-"), ("black", DASHES[1]), (GREY, "-"), (GREY, DASHES[2]))
)
"""Colour and dashes of what is no policy (models, fits, readings): no policy is black or grey."""


def name_within(axes: Axes, line: Line2D, at: float, *, above: bool, label: str) -> None:
    """Write a line's name on it where lines of one colour are apart, which their ends aren't.

    Parameters
    ----------
    axes, line
        Where, and which.
    at
        Abscissa of the middle of the name.
    above
        Whether the name stands above the line, not below.
    label
        The name.
    """
    x, y = (np.asarray(values, dtype=np.float64) for values in line.get_data())
    axes.annotate(
        label,
        (at, float(np.interp(at, x, y))),
        xytext=(0, 5 if above else -5),
        textcoords="offset points",
        ha="center",
        va="bottom" if above else "top",
        color=line.get_color(),
        fontsize=9,
    )
