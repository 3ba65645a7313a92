import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATH = ROOT / "examples" / "tour.py"


def test_the_tour_runs_as_a_script_and_says_what_the_library_says() -> None:
    result = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, PATH],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    # The gain of the optimum over r - group mean on Beta(1/2, 1) at noise (5, 10.6): docs/guides/your-budget.md.
    assert "The gain of 1.46: advantages 1.29, a fixed number of 5 responses 1.00, adaptivity 1.13" in result.stdout
    # 129 of the 300 prompts have no correct response, and each of them gets all 16.
    replay = re.search(r"300 prompts under mixed, 2 x 8: (\d+) responses", result.stdout)
    assert replay is not None
    assert 129 * 16 < int(replay[1]) < 300 * 16
    rates = [float(rate) for rate in re.findall(r"pass rate (0\.\d+) after", result.stdout)]
    assert len(rates) == 2
    assert min(rates) > 0.5


def test_every_cell_of_the_notebook_has_its_kind() -> None:
    cells = re.split(r"^# %%", PATH.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(cells) >= 12
    for cell in cells:
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") or not line for line in cell.splitlines()[1:])
        else:
            compile(cell.partition("\n")[2], PATH.name, "exec")
