"""Readers of rollouts: whatever a training framework or an evaluation wrote down, as pools of responses."""

from sim.readers.formats import Selection
from sim.readers.log import RolloutLog
from sim.readers.options import ReadOptions, option_of
from sim.readers.reading import read_rollouts

__all__ = ["ReadOptions", "RolloutLog", "Selection", "option_of", "read_rollouts"]
