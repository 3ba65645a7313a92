"""TRL's own tests of ``GRPOTrainer``, from a checkout that you name, with its trainer and with the adapter.

::

    .venv-trl/bin/python -m bench.trl_own_tests ~/trl --only test_training

The checkout should be of the installed version: tests of another one fail with both. Nothing of TRL is copied.
Under ``grpo:no_signal=keep`` every run must have stock's logs and parameters to the bit. Under an adaptive policy tests
that pass with TRL's trainer may fail where the adapter refuses an option, and the refusals are listed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STOCK = ""
POLICIES = ("grpo:no_signal=keep", "reinforce-ada-balance")
TESTS = "tests/test_grpo_trainer.py"


def record(checkout: Path, tests: str, policy: str, only: str | None) -> dict[str, dict[str, Any]]:
    """Run the tests under a policy (TRL's own trainer where it is empty) and return what each of them did."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "bench.trl_plugin", "-p", "no:cacheprovider", tests]
        root = str(Path(__file__).parents[1])
        paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(  # noqa: S603 - pytest, on files that the user names
            command + (["-k", only] if only else []),
            cwd=checkout,
            env={**os.environ, "ADA_POLICY": policy, "ADA_RECORD": str(file), "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        if not file.exists():
            msg = f"pytest did not run in {checkout}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            raise SystemExit(msg)
        found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        return found


def verdict(stock: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Say in words how a test went with the adapter, beside TRL's own trainer."""
    if stock["outcome"] != "passed":
        return f"not passed by TRL's own trainer ({stock['outcome']})"
    if ours["outcome"] == "passed":
        if not stock["runs"]:
            return "passes, trains nothing"
        same = json.dumps(stock["runs"]) == json.dumps(ours["runs"])
        return "passes, logs and parameters to the bit" if same else "passes, trains otherwise"
    reason = str(ours["reason"])
    return f"refused: {reason}" if reason.startswith(("InputError", "TRLSurfaceError")) else f"FAILS: {reason}"


def report(found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return the verdicts as text: counts, then the tests of each verdict that is no plain pass."""
    lines = []
    stock = found[STOCK]
    for policy, ours in found.items():
        if policy == STOCK:
            continue
        by_verdict: dict[str, list[str]] = defaultdict(list)
        for name, entry in stock.items():
            missing = {"outcome": "failed", "reason": "not collected", "runs": []}
            by_verdict[verdict(entry, ours.get(name, missing))].append(name)
        counts = Counter({what: len(names) for what, names in by_verdict.items()})
        lines.append(f"{policy}: {sum(counts.values())} tests")
        lines += [f"  {count:4d}  {what}" for what, count in counts.most_common()]
        for what, names in by_verdict.items():
            if not what.startswith("passes"):
                lines += [f"    {name}: {what}" for name in names]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of TRL, of the installed version")
    parser.add_argument("--tests", default=TESTS, help="the file of tests within it")
    parser.add_argument("--only", help="an expression for pytest's -k")
    parser.add_argument("--policy", action="append", help="a policy; may be given again")
    options = parser.parse_args()
    if not (options.checkout / options.tests).is_file():
        parser.error(f"{options.checkout / options.tests} does not exist: name a checkout of TRL, or --tests")
    policies = (STOCK, *(options.policy or POLICIES))
    print(report({each: record(options.checkout, options.tests, each, options.only) for each in policies}))


if __name__ == "__main__":
    main()
