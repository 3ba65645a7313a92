"""How long a training step takes: response lengths, a server with slots, rounds, the update."""

from sim.clock.formula import step_time
from sim.clock.parts import Lengths, Machine, StepTime
from sim.clock.simulation import SimulatedSteps, simulate_step

__all__ = ["Lengths", "Machine", "SimulatedSteps", "StepTime", "simulate_step", "step_time"]
