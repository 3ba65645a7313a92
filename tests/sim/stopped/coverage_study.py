"""Coverage of the intervals over many simulated logs: ``python -m tests.sim.stopped.coverage_study 1000``."""

from __future__ import annotations

import sys

from sim.stopped import Pools, Resampling, Stopping, StoppingKind, Study, fit_kept, fit_with_signal
from tests.sim.stopped.pools import RULES, prompts, simulate
from tests.sim.stopped.test_selected import kept, with_signal
from tests.sim.stopped.test_stopped import exact_signal


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def study(logs: int, size: int = 400, replicates: int = 400) -> None:
    """Print, by rule and estimate, the share of logs whose 95 % interval holds the truth."""
    say(f"{logs} logs of {size} prompts, share of 95 % intervals that hold the truth")
    for name, policy in RULES.items():
        hits: dict[str, int] = {}
        for seed in range(logs):
            rates, random = prompts(size, seed)
            pools = simulate(policy, rates, random)
            known = Study.of(pools, policy, replicates=replicates)
            unknown = Stopping(StoppingKind.unknown, None, stated=False, evidence=())
            blind = Study(pools, unknown, known.selection, None, (), replicates)
            for what, found, truth in (
                ("rule n=2", known.plain_signal(2), exact_signal(2)),
                ("rule n=4", known.plain_signal(4), exact_signal(4)),
                ("order n=4", blind.plain_signal(4), exact_signal(4)),
                ("law n=4", known.law.signal(4), exact_signal(4)),
                ("law n=8", known.law.signal(8), exact_signal(8)),
                ("law n=16", known.law.signal(16), exact_signal(16)),
                ("rule mean", known.pass_rate, 0.2),
                ("law mean", known.law.mean, 0.2),
            ):
                hits[what] = hits.get(what, 0) + (found.low <= truth <= found.high)
        say(f"  {name}: " + ", ".join(f"{what} {count / logs:.1%}" for what, count in hits.items()))
    selected(logs, replicates)


def selected(logs: int, replicates: int) -> None:
    """Print the same for files of groups with signal alone, and of groups that a policy kept."""
    for name in ("with signal", "kept by pos", "kept by balance"):
        hits = [0, 0]
        for seed in range(logs):
            pools: Pools
            if name == "with signal":
                pools = with_signal(1500, 8, seed)
                fit, truth = (
                    fit_with_signal(pools, Resampling(pools, replicates)),
                    (1.2 / 3.7, exact_signal(4, 1.2, 2.5)),
                )
            else:
                policy = RULES[name.removeprefix("kept by ")]
                pools = kept(policy, 1500, seed)
                fit, truth = fit_kept(pools, policy, Resampling(pools, replicates)), (0.2, exact_signal(4))
            for at, found in enumerate((fit.mean, fit.signal(4))):
                hits[at] += found.low <= truth[at] <= found.high
        say(f"  {name}: mean {hits[0] / logs:.1%}, law n=4 {hits[1] / logs:.1%}")


if __name__ == "__main__":
    study(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
