"""The report as one HTML file that needs nothing else: no script, no font, no request to any host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ada_bandit.programs.folders import write_text
from ada_bandit.score_model import ASSUMPTIONS
from ada_bandit.tables import draw_lattice
from sim.advise.changes import OVERLAP, options_of, step_choices
from sim.advise.charts import composition, law_bars, legend, line_legend, noise_lines, small_range
from sim.advise.gains import WORTH
from sim.advise.groups import MOST
from sim.advise.paste import Paste, pastes_of
from sim.advise.profiles import profile_of
from sim.advise.settings import NOISE
from sim.advise.study import Advice
from sim.advise.style import STYLE
from sim.advise.verdict import Compared
from sim.stopped.pools import Interval, interval

__all__ = ["page", "write_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the page may load: nothing."""


def write_page(advice: Advice, folder: Path) -> list[Path]:
    """Write the page and the policy files into an existing folder; return the files."""
    files = {"advise.html": page(advice)} | {each.file: each.toml for each in pastes_of(advice)}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def page(advice: Advice) -> str:
    """Return the page as HTML text; whatever comes from the log is escaped."""
    body = "".join(_body(advice))
    title = escape(f"Advice: {advice.report.label}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def _body(advice: Advice) -> Iterator[str]:
    verdict = advice.verdict
    yield f"<h1>Would another way of sampling pay? {escape(advice.report.label)}</h1>"
    yield f'<section class="verdict {verdict.adaptive}"><h2>{escape(verdict.headline)}</h2>'
    yield f"<p>{_text(verdict.text)}</p></section>"
    yield from _tiles(advice)
    yield from _log(advice)
    yield from _prompts(advice)
    yield from _silent(advice)
    if advice.compared:
        yield from _changes(advice)
        yield from _policies(advice)
        yield from _step(advice)
        yield from _turns(advice)
        yield from _pastes(advice)
    yield from _rests(advice)


# Pieces


def _text(words: str) -> str:
    """Escape words, and set what stands between backticks as code."""
    parts = escape(words).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


def _percent(found: Interval) -> str:
    if not math.isfinite(found.low):
        return f"{found.value:.0%}"
    return f"{found.value:.0%} <small>({found.low:.0%} to {found.high:.0%})</small>"


def _number(found: Interval, digits: int = 2) -> str:
    if not math.isfinite(found.value):
        return "-"
    value = f"{found.value:.{digits}f}"
    if not math.isfinite(found.low) or found.high - found.low < 10**-digits / 2:
        return value
    return f"{value} <small>({found.low:.{digits}f} to {found.high:.{digits}f})</small>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "wide", now: int = -1) -> str:
    """Return a table; cells are HTML. On a phone every row is a block, and cells carry their heads."""
    head = "".join(
        f'<th class="words">{each}</th>' if place == 0 else f"<th>{each}</th>" for place, each in enumerate(heads)
    )
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(
            f"<td>{cell}</td>" if not column else f'<td data-name="{escape(_plain(heads[column]))}">{cell}</td>'
            for column, cell in enumerate(row)
        )
        lines.append(f'<tr class="now">{cells}</tr>' if place == now else f"<tr>{cells}</tr>")
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _plain(head: str) -> str:
    return head.replace("<br>", " ")


def _tile(value: str, words: str) -> str:
    return f'<div class="tile"><b>{value}</b><span>{words}</span></div>'


def _ends(low: float, high: float) -> str:
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"


# Sections


def _tiles(advice: Advice) -> Iterator[str]:
    rate = advice.to_dict()["pass_rate"]
    yield '<div class="tiles">'
    yield _tile(f"{rate['value']:.1%}", "of responses are correct (mean over prompts)")
    yield _tile(
        f"{1 - advice.groups.signal.value:.0%}", f"of groups have no signal now, under {escape(advice.now.label)}"
    )
    if advice.gains is not None:
        parts = {name: values[0] for name, values in advice.split()}
        yield _tile(
            f"&times; {parts['number'] * parts['advantages']:.2f}", "at the most from another number and advantages*"
        )
        yield _tile(f"&times; {parts['adaptivity']:.2f}", "more from adaptive rounds, on top*")
    yield "</div>"
    if advice.gains is not None:
        yield f"<p class='soft'>* progress per response at {escape(advice.choices.middle.label)}, by the score model.</p>"


def _log(advice: Advice) -> Iterator[str]:
    report = advice.report
    yield "<h2>What the log is</h2>"
    rows = []
    if report.log is None:
        rows.append(("scalars", escape(report.label)))
    else:
        log = report.log
        correct = int(log.correct.sum())
        rows += [
            ("format", escape(log.format)),
            ("prompts", f"{log.prompts:,}"),
            ("responses", f"{log.responses:,}, of which {correct:,} correct and {log.unscored:,} without a score"),
        ]
        if log.steps.size:
            rows.append(("training steps", f"{log.steps.size}, from {log.steps[0]} to {log.steps[-1]}"))
        if report.study is not None:
            held = {
                "all": "all that was drawn",
                "trained": "rows that were trained on; groups without signal may be missing",
                "signal": "groups with signal alone",
                "kept": "rows kept of larger pools",
            }
            rows.append(("holds", held[report.study.selection.value]))
            kinds = {
                "plain": "plainly: their sizes don't depend on rewards",
                "rule": "by a rule on their own rewards",
                "unknown": "by their rewards, in a way that isn't known",
            }
            stopping = report.study.stopping
            name = f" ({escape(stopping.policy.label)})" if stopping.policy is not None else ""
            rows.append(("pools ended", kinds[stopping.kind.value] + name))
        if advice.lengths is not None:
            rows.append(
                (
                    "mean length",
                    f"{advice.lengths.means[0]:.0f} tokens of a correct response, {advice.lengths.means[1]:.0f} of an incorrect one",
                )
            )
    guess = ' <span class="tag">assumed</span>' if advice.now.assumed else ""
    rows.append(("run now", f"{escape(advice.now.label)}{guess}<br><small>{_text(advice.now.why)}</small>"))
    yield (
        '<table class="facts"><tbody>'
        + "".join(f"<tr><td>{a}</td><td>{b}</td></tr>" for a, b in rows)
        + "</tbody></table>"
    )
    read = () if report.log is None else report.log.notes
    yield from _notes("How it was read", read)
    yield from _notes("What is uncertain", advice.notes)


def _notes(title: str, notes: Sequence[str]) -> Iterator[str]:
    if notes:
        items = "".join(f"<li>{_text(each)}</li>" for each in dict.fromkeys(notes))
        yield f'<h3>{title}</h3><ul class="notes">{items}</ul>'


def _prompts(advice: Advice) -> Iterator[str]:
    yield '<h2>How hard the prompts are <span class="tag">exact given the law</span></h2>'
    yield f"<p>The law of pass rates: {escape(advice.law.how)}. Bars show how many prompts have which chance to be answered right; lines are 95 % intervals.</p>"
    yield '<div class="figures"><figure><figcaption>Share of prompts by their pass rate</figcaption>'
    yield law_bars(advice)
    yield legend([("good", "whose group has signal now"), ("idle", "whose group has none")])
    yield "</figure><figure><figcaption>What a group of n plain responses holds</figcaption>"
    yield composition(advice)
    yield legend([("hard", "no correct one"), ("good", "both classes: signal"), ("easy", "no incorrect one")])
    yield "</figure></div>"
    rows = [[f"n = {n}", _percent(found)] for n, found in advice.plain_signal.items()]
    yield _table(["plain responses", "groups with signal"], rows, "narrow")


def _silent(advice: Advice) -> Iterator[str]:
    groups = advice.groups
    yield '<h2>Groups without signal <span class="tag">exact given the law</span></h2>'
    yield (
        f"<p>Under {escape(advice.now.label)}, {1 - groups.signal.value:.0%} of the groups hold one class alone and teach nothing: "
        f"{groups.all_wrong.value:.0%} hold no correct response and {groups.all_right.value:.0%} no incorrect one.</p>"
    )
    rows = [
        [f"n is too small: both classes would come up within {MOST} responses", _percent(groups.small)],
        [f"too hard: no correct one in {MOST} either", _percent(groups.hard)],
        [f"too easy: no incorrect one in {MOST} either", _percent(groups.easy)],
    ]
    yield _table(["why", "share of all groups"], rows, "narrow")
    if groups.recoveries:
        yield "<h3>What going on would recover, and what it costs</h3>"
        yield "<p>Where a group holds one class alone, more responses are drawn until the other comes up, or the pool is full.</p>"
        rows = [
            [f"up to {each.responses} responses", _percent(each.signal), _number(each.extra, 1), _number(each.each, 0)]
            for each in groups.recoveries
        ]
        heads = ["pool", "groups with signal", "more responses<br>a prompt", "more responses<br>a recovered group"]
        yield _table(heads, rows)
    yield (
        f"<p>What no sampling could recover are prompts with a pass rate of exactly 0 or 1. Pools of {groups.seen} can't prove that there are any: "
        f"the share with p = 0 lies between 0 and {groups.never:.1%}, that with p = 1 between 0 and {groups.always:.1%}.</p>"
    )


def _changes(advice: Advice) -> Iterator[str]:
    yield '<h2>What you could change, one thing at a time <span class="tag">score model</span></h2>'
    yield (
        f"<p>Progress per response, as a multiple of what you run now, at {escape(advice.choices.middle.label)}. The dot is the value, the dark line its 95 % interval "
        "over resamples of the prompts, and the pale line the range over all settings below.</p>"
    )
    rows = [
        [
            f"<b>{escape(each.name)}</b><br><small>{escape(each.how)}</small>",
            _number(each.factor),
            small_range(each.factor.value, each.factor.low, each.factor.high, each.ends),
            _ends(*each.ends),
        ]
        for each in options_of(advice)
    ]
    yield _table(["change", "times now", "0.2 to 1 to 5", "over settings"], rows)
    yield from _split(advice)


def _split(advice: Advice) -> Iterator[str]:
    names = {
        "advantages": ("the advantages", "the best ones, over the usual ones at the same number of responses"),
        "number": ("the number", "the best fixed number of responses, over that"),
        "adaptivity": ("adaptivity", "the best rounds that a trainer can run, over the best fixed number"),
        "one_by_one": ("adaptivity without limits", "one response at a time, all kept, over the best fixed number"),
        "knowledge": (
            "knowledge",
            "known pass rates and the best tenth of prompts, over the best fixed number: a bound",
        ),
    }
    yield "<h3>Where a gain comes from</h3><p>The first three multiply to what the best rounds gain in all.</p>"
    gains = advice.gains
    rows = []
    for name, values in advice.split():
        title, what = names[name]
        found = interval(float(values[0]), values[1:], "", 0.0)
        known = getattr(gains, name)[:, 0]
        rows.append(
            [
                f"<b>{title}</b><br><small>{what}</small>",
                _number(found),
                small_range(found.value, found.low, found.high, (float(known.min()), float(known.max()))),
                _ends(float(known.min()), float(known.max())),
            ]
        )
    yield _table(["part", "factor", "0.2 to 1 to 5", "over settings"], rows)
    if advice.choices.noise_ratio is None and gains is not None:
        yield from _by_noise(advice)


def _by_noise(advice: Advice) -> Iterator[str]:
    gains = advice.gains
    if gains is None:
        return
    count = len(NOISE)
    plain = gains.base[:count] * gains.advantages[:count] * gains.number[:count]
    lines = [("the best fixed number, tuned", plain), ("the best rounds, tuned", plain * gains.adaptivity[:count])]
    for key, label in (
        ("reinforce:", "one response, mean as baseline"),
        ("reinforce-ada-balance", "Reinforce-Ada-balance"),
    ):
        lines += [(label, each.factors[:count]) for each in advice.compared[1:] if each.candidate.key.startswith(key)]
    shown = []
    for label, values in lines:
        found = [interval(float(row[0]), row[1:], "", 0.0) for row in values]
        ends = np.array([[each.low for each in found], [each.high for each in found]])
        shown.append((label, values[:, 0], ends))
    yield "<figure><figcaption>Progress per response over what you run now (dashed), by the noise ratio of scores; "
    yield f"{'fresh prompts' if advice.choices.worlds[0][0] == 1 else 'at the given transfer'}</figcaption>"
    yield noise_lines(shown, NOISE)
    yield line_legend([label for label, _, _ in shown])
    yield "</figure>"


def _policies(advice: Advice) -> Iterator[str]:
    yield '<h2>The policies <span class="tag">responses and signal: exact given the law</span> <span class="tag">the rest: score model</span></h2>'
    heads = [
        "policy",
        "responses<br>a prompt",
        "groups with<br>signal",
        "per response",
        "0.2 to 1 to 5",
        "over settings",
    ]
    tokens = any(each.per_token is not None for each in advice.compared)
    if tokens:
        heads += ["per token", "per second"]
    rows = []
    for each in advice.compared:
        row = [
            escape(each.candidate.label),
            _number(each.responses, 1),
            _percent(each.signal),
            _number(each.per_response),
            small_range(each.per_response.value, each.per_response.low, each.per_response.high, each.ends),
            _ends(*each.ends),
        ]
        if tokens:
            row += ["-" if found is None else _number(found) for found in (each.per_token, each.per_second)]
        rows.append(row)
    yield _table(heads, rows, now=0)
    yield (
        "<p class='soft'>Equal responses, equal tokens, equal wall-clock time: how many times the progress of what you run now, for the same number drawn, or for the same seconds. The last rows were computed "
        f"for this law at {escape(advice.choices.middle.label)}, and are shown as they fare elsewhere.</p>"
    )
    rounds = advice.policy("best-rounds")
    yield f"<h3>What the best rounds do</h3><p>{_rounds(rounds)}</p>"
    policy = rounds.candidate.policy
    picture = draw_lattice(policy.tables, size=min(policy.budget.max_samples, 9) + 1)
    yield f"<pre>{escape(picture)}</pre>"
    yield "<p class='soft'>Correct responses upwards, incorrect ones to the right. A number is the size of the next round, + and x are where the prompt ends.</p>"


def _rounds(rounds: Compared) -> str:
    at = np.array([0.0, 0.05, 0.3, 0.5, 0.8, 1.0])
    samples = profile_of(rounds.candidate.policy, at).moments.samples
    told = ", ".join(f"{n:.1f} at p = {p:g}" for p, n in zip(at, samples, strict=True))
    return f"They draw by the pass rate p of a prompt, on average: {told}."


def _step(advice: Advice) -> Iterator[str]:
    choices = step_choices(advice)
    if not choices:
        return
    yield f'<h2>With {advice.responses_a_step:,} responses a step <span class="tag">score model</span></h2>'
    yield (
        "<p>The number of responses a prompt and that of prompts are one choice. The last column lets the directions of different prompts overlap "
        f"by {OVERLAP:g} (a tiny model's is 0.019): more prompts then partly say the same thing.</p>"
    )
    rows = [
        [escape(each.label), f"{each.prompts:,.0f}", f"{each.signal:,.0f}", _number(each.apart), _number(each.overlap)]
        for each in choices
    ]
    yield _table(
        ["policy", "prompts", "groups with<br>signal", "progress a step,<br>times now", f"with overlap<br>{OVERLAP:g}"],
        rows,
        now=0,
    )


def _turns(advice: Advice) -> Iterator[str]:
    yield '<h2>Where the answer turns <span class="tag">score model</span></h2>'
    yield f"<p>Adaptive rounds are taken to pay where they make {WORTH:g} times or more the progress per response of the best fixed number.</p>"
    turns = advice.verdict.turns
    if not turns:
        yield "<p>Nowhere in the range: no noise ratio, transfer or update cost that was tried turns it.</p>"
        return
    rows = [
        [
            escape(each.quantity.replace("_", " ")),
            f"{each.value:.2g}",
            "above it" if each.above else "below it",
            escape(each.others),
        ]
        for each in turns
    ]
    yield _table(["what it depends on", "turns at", "rounds pay", "everything else"], rows)
    yield (
        "<p class='soft'>Noise ratio: how much of a response's gradient is noise; <code>python -m llm probe</code> measures it. Transfer: fresh prompts at every step are 1, a small pool that "
        "comes back is 0. Update cost: what a row of the update costs, in responses drawn.</p>"
    )


def _pastes(advice: Advice) -> Iterator[str]:
    yield "<h2>Settings to paste</h2>"
    for each in pastes_of(advice):
        yield from _paste(each)


def _paste(paste: Paste) -> Iterator[str]:
    yield f'<section class="paste"><h3>{escape(paste.title)} <span class="tag">{escape(paste.why)}</span></h3>'
    yield f"<p>{escape(paste.note)}</p>"
    if paste.trl:
        yield f"<p class='soft'>TRL</p><pre>{escape(paste.trl)}</pre>"
    yield f"<p class='soft'>verl, after its own arguments</p><pre>{escape(paste.verl)}</pre>"
    yield f"<details><summary>Policy file {escape(paste.file)}</summary><pre>{escape(paste.toml)}</pre></details></section>"


def _rests(advice: Advice) -> Iterator[str]:
    yield "<h2>What these numbers rest on</h2>"
    yield (
        '<ul class="notes"><li><b>Exact given the law</b>: responses, tokens, groups with and without signal. What is uncertain about the law is in the intervals, '
        "which are of 95 %, from resamples of the prompts; what the law can't know is said above.</li>"
        f"<li><b>By the score model</b>: whatever is called progress. {escape(ASSUMPTIONS[0].upper() + ASSUMPTIONS[1:])}. Where it was held against training runs it ordered "
        "plain policies rightly and over-rated its own optimum. It speaks of one step, and not of where a run ends.</li>"
        f"<li><b>Settings</b>: {escape(advice.choices.label)}. What you know narrows them: <code>--noise-ratio</code>, <code>--objective</code>, <code>--transfer</code>, "
        "<code>--update-cost</code>.</li></ul>"
    )
