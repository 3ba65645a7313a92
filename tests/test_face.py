"""What `import ada_bandit` shows."""

import subprocess
import sys

import ada_bandit

FACE = (
    "Allocator Policy Tables analyze Balance Positive Quota Never Rounds exit_rule Beta ScoreModel gradient_efficiency "
    "bayes_policy policy_for_budget frontier induced_objective EmpiricalBayes PassRateMemory uniform AdaBanditError"
)
FAMILIES = "rules budgets groups advantages laws presets"


def test_the_names_are_about_twenty_and_dir_lists_them_all() -> None:
    assert sorted(ada_bandit.__all__) == sorted([*FACE.split(), *FAMILIES.split()])
    assert set(ada_bandit.__all__) <= set(dir(ada_bandit))
    assert all(getattr(ada_bandit, name) is not None for name in ada_bandit.__all__)


def test_tables_and_exact_analysis_start_without_numba_and_scipy() -> None:
    code = (
        "import sys, ada_bandit\n"
        "assert {'Allocator', 'EmpiricalBayes', 'uniform'} <= set(dir(ada_bandit))\n"
        "ada_bandit.analyze(ada_bandit.Policy.preset('reinforce-ada-balance'), [0.1, 0.5])\n"
        "print(sorted({'numba', 'scipy', 'torch'} & set(sys.modules)))\n"
        "ada_bandit.Allocator\n"
        "print('numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\nTrue\n"
