"""Statistics of logs that are right for how a log came about: stopped, selected, or scalars alone."""

from sim.stopped.laws import LawFit, fit_beta, fit_grid, no_signal, signal
from sim.stopped.pools import Interval, Pools, Resampling
from sim.stopped.scalars import ScalarLaw, law_of_scalars, parse_scalars
from sim.stopped.selected import fit_kept, fit_plain_beta, fit_with_signal
from sim.stopped.stopping import Stopping, StoppingKind, infer_stopping
from sim.stopped.study import Drift, StepSummary, Study

__all__ = [
    "Drift",
    "Interval",
    "LawFit",
    "Pools",
    "Resampling",
    "ScalarLaw",
    "StepSummary",
    "Stopping",
    "StoppingKind",
    "Study",
    "fit_beta",
    "fit_grid",
    "fit_kept",
    "fit_plain_beta",
    "fit_with_signal",
    "infer_stopping",
    "law_of_scalars",
    "no_signal",
    "parse_scalars",
    "signal",
]
