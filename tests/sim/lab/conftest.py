"""The lab's modules in an engine without a browser, and in one with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sim.lab.page import bundle

Run = Callable[..., Any]

_HELPERS = """
function numbers(policy, law, model, rates) {
  const tables = compile(policy);
  const sums = overLaw(tables, law, model);
  const grpo = grpoAtCost(sums.samples, law, model);
  const at = Object.fromEntries(Object.entries(analyze(tables, rates)).map(([key, values]) => [key, [...values]]));
  return { sums, grpo, at, efficiency: efficiency(sums, model), grpoEfficiency: efficiency(grpo, model) };
}
function exitLaw(policy, rate) {
  const tables = compile(policy);
  const law = cellLaw(tables, rate);
  const side = tables.most + 1;
  return [...law].flatMap((chance, at) => (tables.exits[at] ? [[Math.floor(at / side), at % side, chance]] : []));
}
function allTables(policy) {
  const tables = compile(policy);
  const side = tables.most + 1;
  const starts = Array.from({ length: side }, (_, pos) => pos * side);
  const rows = (name) => [name, starts.map((at) => [...tables[name]].slice(at, at + side))];
  return Object.fromEntries(["draws", "exits", "keepPos", "keepNeg", "gainPos", "gainNeg"].map(rows));
}
function problem(run) {
  try { run(); return ""; } catch (error) { return error.constructor.name + ": " + error.message; }
}
"""


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
MODULES = ("analysis.js", "charts.js", "fit.js", "paste.js", "state.js", "words.js")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Return a browser of the system, driven by playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser is installed ({', '.join(BROWSERS)}): apt-get install chromium")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session", params=["engine", "browser"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return what calls a function of the lab by its name with plain values."""
    script = bundle(*MODULES) + _HELPERS
    if request.param == "engine":
        racer = pytest.importorskip("py_mini_racer", reason="mini-racer runs the lab's scripts: pip install mini-racer")
        context = racer.MiniRacer()
        # The engine knows no address bar.
        context.eval("globalThis.URLSearchParams ??= class {};" + script)
        evaluate = context.eval
    else:
        page = request.getfixturevalue("browser").new_page()
        page.add_script_tag(content=script)
        evaluate = page.evaluate

    def call(name: str, *values: Any) -> Any:
        text = evaluate(f"JSON.stringify({name}({', '.join(json.dumps(value) for value in values)}) ?? null)")
        return json.loads(text)

    return call
