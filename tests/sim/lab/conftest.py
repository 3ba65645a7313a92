"""The lab's modules in a JavaScript engine without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
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


@pytest.fixture(scope="session")
def run() -> Run:
    """Return what calls a function of the lab by its name with plain values."""
    racer = pytest.importorskip("py_mini_racer", reason="mini-racer runs the lab's scripts: pip install mini-racer")
    context = racer.MiniRacer()
    # The engine knows no address bar; a browser's test sees to links.
    context.eval("globalThis.URLSearchParams ??= class {};")
    context.eval(bundle("analysis.js", "charts.js", "fit.js", "paste.js", "state.js", "words.js") + _HELPERS)

    def call(name: str, *values: Any) -> Any:
        text = context.eval(f"JSON.stringify({name}({', '.join(json.dumps(value) for value in values)}) ?? null)")
        return json.loads(text)

    return call
