"""What `import ada_bandit` shows."""

import subprocess
import sys

import pytest

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


def test_names_that_are_looked_up_have_one_home() -> None:
    shown = {name for names in ada_bandit._HOMES.values() for name in names}
    assert shown | set(ada_bandit._FAMILIES) == set(ada_bandit.__all__)
    with pytest.raises(AttributeError, match="module 'ada_bandit' has no attribute 'polcy'"):
        ada_bandit.polcy  # noqa: B018 - looked up


def test_what_is_imported_when() -> None:
    code = (
        "import sys, ada_bandit\n"
        "print('numpy' in sys.modules)\n"
        "assert set(ada_bandit.__all__) <= set(dir(ada_bandit))\n"
        "ada_bandit.analyze(ada_bandit.Policy.preset('reinforce-ada-balance'), [0.1, 0.5])\n"
        "print(sorted({'numba', 'scipy', 'torch'} & set(sys.modules)))\n"
        "ada_bandit.Allocator\n"
        "print('numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "False\n[]\nTrue\n"


@pytest.mark.parametrize("module", ["policy", "presets", "optimal"])
def test_presets_are_known_whatever_is_imported_first(module: str) -> None:
    code = f"import ada_bandit.{module}\nfrom ada_bandit.policy import Policy\nprint(Policy.preset('grpo').n)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "4\n"
