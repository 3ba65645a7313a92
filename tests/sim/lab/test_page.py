"""The lab's page: what it holds, and how it works in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from ada_bandit import Policy
from ada_bandit.exact import analyze_law
from sim.cli import app
from sim.lab.page import lab_page
from sim.sources import from_name

PHONE, DESKTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
Open = Callable[..., Any]


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    out = tmp_path / "new" / "lab.html"
    result = CliRunner().invoke(app, ["lab", "--out", str(out), "--no-open"])
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8") == lab_page()
    result = CliRunner().invoke(app, ["lab", "--out", str(tmp_path), "--no-open"])
    assert result.exit_code == 2
    assert "is a folder" in result.output


def test_the_page_is_one_small_file_that_may_ask_nobody() -> None:
    page = lab_page()
    assert len(page.encode()) < 500_000
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#)|url\(|@import|\beval\(|new Function', page)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("lab") / "lab.html"
    path.write_text(lab_page(), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def show(browser: Any, address: str) -> Iterator[Open]:
    """Return what opens the page; afterwards no error was raised, and no other address was asked for."""
    seen: list[str] = []
    contexts = []

    def opened(part: str = "", *, size: dict[str, int] = DESKTOP, scheme: str = "light") -> Any:
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("request", lambda request: seen.append(request.url.partition("#")[0]))
        page.goto(address + part)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert set(seen) == {address}


def tile(page: Any, number: int) -> str:
    return str(page.locator("#tiles dd").nth(number).inner_text())


def test_the_page_shows_what_the_library_computes(show: Open) -> None:
    page = show()
    exact = analyze_law(Policy.preset("reinforce-ada-balance"), from_name("smollm2-reasoning-gym").law)
    assert tile(page, 0).startswith(f"{exact['expected_samples']:.2f}\n")
    assert tile(page, 1).startswith(f"{100 * exact['signal_probability']:.0f}\u00a0%")
    page.select_option("#preset", "reinforce-ada-pos")
    page.select_option("#law", "qwen2.5-math-1.5b-base")
    exact = analyze_law(Policy.preset("reinforce-ada-pos"), from_name("qwen2.5-math-1.5b-base").law)
    assert tile(page, 0).startswith(f"{exact['expected_samples']:.2f}\n")


def test_a_link_carries_the_whole_state(show: Open) -> None:
    page = show()
    page.select_option("#rule", "expression")
    page.fill("#expr", "~(pos < 2) & neg >= 1 | pos + neg > 20")
    page.fill("#m", "5")
    page.select_option("#adv", "unbiased")
    page.select_option("#law", "beta")
    page.fill("#a", "0.7")
    page.select_option("#objective", "pass")
    page.fill("#k", "3")
    page.fill("#transfer", "0.25")
    page.click("#pin")
    page.select_option("#group", "uniform")
    page.locator("#rate").press("ArrowRight")
    page.check("input[value=adv_pos]", force=True)
    link = page.evaluate("location.hash")
    shown = [page.locator(id_).inner_text() for id_ in ("#tiles", "#at-rate", "#table", "#paste", "#names")]
    again = show(link)
    assert [again.locator(id_).inner_text() for id_ in ("#tiles", "#at-rate", "#table", "#paste", "#names")] == shown
    assert again.evaluate("location.hash") == link
    assert again.is_checked("input[value=adv_pos]")


@pytest.mark.parametrize("part", ["#policy=x", "#policy=a~b~c&p=NaN&nu=,&pin=~&law=none", "#counts=1-2&law=file", "#%"])
def test_a_broken_link_opens_the_page_all_the_same(show: Open, part: str) -> None:
    page = show(part)
    assert page.locator("#tiles dd").count() == 5
    assert page.inner_text("#error") == ""


def test_a_link_with_a_faulty_rule_can_be_mended(show: Open) -> None:
    faulty = "expression~1~1~pos%20%3E~8~0~4~4~balanced~pool_mean~mask"
    page = show(f"#policy={quote(faulty)}&pin={quote('mine~' + faulty)}&table=draws")
    assert "a value is missing" in page.inner_text("#error")
    page.check("input[value=keep_pos]", force=True)
    page.focus("#lattice-box")
    page.keyboard.press("ArrowUp")
    page.set_viewport_size(PHONE)
    page.fill("#expr", "pos > 2")
    assert page.inner_text("#error") == ""
    assert page.locator("#table tbody tr").count() == 1


def test_a_file_gives_a_law_and_goes_into_the_link_on_demand_alone(show: Open) -> None:
    page = show()
    text = "prompt_id,correct,total\n" + "".join(f"p{i},{i % 9},8\n" for i in range(40))
    file = {"name": "rates.csv", "mimeType": "text/csv", "buffer": text.encode()}
    page.set_input_files("#file", file)
    page.locator("#law-note:has-text('40 prompts')").wait_for()
    assert page.input_value("#law") == "file"
    shown = page.inner_text("#tiles")
    assert "counts" not in page.evaluate("location.hash")
    page.check("#with-counts")
    assert show(page.evaluate("location.hash")).inner_text("#tiles") == shown
    page.set_input_files("#file", file | {"buffer": b"correct,total\n9,8\n"})
    page.locator("#file-error:not(:empty)").wait_for()
    assert "line 2" in page.inner_text("#file-error")
    assert page.inner_text("#tiles") == shown


def test_what_cannot_be_computed_is_told_and_mended(show: Open) -> None:
    page = show()
    page.select_option("#rule", "expression")
    page.fill("#expr", "pos >= ")
    assert "a value is missing" in page.inner_text("#error")
    page.fill("#expr", "pos >= 3")
    assert page.inner_text("#error") == ""
    page.fill("#r", "40")
    assert "may draw 320 responses" in page.inner_text("#error")


def test_policies_are_pinned_and_removed(show: Open) -> None:
    page = show()
    for preset in ("reinforce-ada-pos", "mixed", "speed"):
        page.select_option("#preset", preset)
        page.click("#pin")
    assert page.is_disabled("#pin")
    assert page.locator("#table tbody tr").count() == 5
    page.get_by_role("button", name="Remove SPEED").click()
    assert page.locator("#table tbody tr").count() == 4
    assert page.is_enabled("#pin")


def test_everything_is_reached_and_worked_by_keys(show: Open) -> None:
    page = show()
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.name || document.activeElement.tagName")
        )
        if reached[-1] == "copy-link":
            break
    order = [
        "skip",
        "preset",
        "rule",
        "m",
        "law",
        "objective",
        "table",
        "lattice-box",
        "rate",
        "pin",
        "paste",
        "copy-link",
    ]
    assert [name for name in reached if name in order] == order
    page.focus("#lattice-box")
    page.keyboard.press("ArrowUp")
    assert re.match(r"1 right, 7 wrong\..* draw 8 more", page.inner_text("#cell"))
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert re.match(r"3 right, 5 wrong\..* the rule holds\. They keep 2 right and 2 wrong", page.inner_text("#cell"))
    page.focus("#skip")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "result"


def test_dragging_on_a_chart_moves_the_pass_rate(show: Open) -> None:
    page = show()
    page.locator("#chart-weight").scroll_into_view_if_needed()
    area = page.locator("#chart-weight").bounding_box()
    page.mouse.move(area["x"] + area["width"] * 0.3, area["y"] + 60)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.9, area["y"] + 60)
    page.mouse.up()
    assert float(page.inner_text("#rate-value")) > 0.9
    assert page.locator("#chart-weight .here").count() == 1


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_and_width(show: Open, size: dict[str, int], scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    page = show(size=size, scheme=scheme)
    while page.locator("details:not([open])").count():
        page.locator("details:not([open]) summary").first.click()
    page.select_option("#rule", "expression")
    page.fill("#expr", "pos > ")
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    found = axe.Axe().run(page).response["violations"]
    assert not found, json.dumps([(each["id"], [node["html"] for node in each["nodes"]]) for each in found], indent=1)
