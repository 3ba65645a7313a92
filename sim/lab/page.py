"""The lab as one page: its modules in one script, its style and the built-in laws inside."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from sim.sources import from_name, source_names

__all__ = ["bundle", "lab_page"]

_WEB = Path(__file__).parent / "web"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+\.js)";\n', re.MULTILINE)
_LABELS = {
    "qwen2.5-math-1.5b-base": "Qwen2.5-Math-1.5B, before training",
    "qwen2.5-math-1.5b-rl": "Qwen2.5-Math-1.5B, after training",
    "smollm2-reasoning-gym": "SmolLM2-135M on reasoning-gym",
}
_NOTES = {
    "qwen2.5-math-1.5b-base": "A law fitted to a published pass@k curve (arXiv 2510.04996, Figure 2).",
    "qwen2.5-math-1.5b-rl": "A law fitted to a published pass@k curve (arXiv 2510.04996, Figure 2).",
    "smollm2-reasoning-gym": "300 prompts with 32 responses each; the prompts' posteriors under a fitted Beta prior.",
}


def bundle(*entries: str) -> str:
    """Return modules and all that they import as one script, which shares one scope.

    Every module imports by lines ``import { names } from "./module.js";`` and exports declarations. No two
    modules declare the same name; a browser refuses the script if they do.

    Parameters
    ----------
    *entries
        Files of the folder ``web``, such as ``"app.js"``.

    Raises
    ------
    ValueError
        If an import or export has another form.
    """
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts:
            return
        text = (_WEB / name).read_text(encoding="utf-8")
        texts[name] = ""  # a module that imports itself by way of others is not looked at twice
        for imported in _IMPORT.findall(text):
            add(imported)
        # What was imported first has to stand first.
        del texts[name]
        texts[name] = re.sub(r"^export (?=const |function |class )", "", _IMPORT.sub("", text), flags=re.MULTILINE)

    for entry in entries:
        add(entry)
    script = "\n".join(texts.values())
    if re.search(r"^(import|export)\b", script, re.MULTILINE):
        msg = f"a module that {', '.join(entries)} needs imports or exports in a form that is not understood"
        raise ValueError(msg)
    return script


@cache
def built_in_laws() -> str:
    """Return the built-in laws as JSON: names, labels, notes and laws."""
    laws = []
    for name in source_names():
        law = from_name(name).law.to_dict()
        laws.append({"name": name, "label": _LABELS.get(name, name), "note": _NOTES.get(name, ""), "law": law})
    return json.dumps(laws, separators=(",", ":"), ensure_ascii=True)


def lab_page() -> str:
    """Return the page as HTML; it holds all it needs, and its policy of contents forbids every request."""
    page = (_WEB / "page.html").read_text(encoding="utf-8")
    script = f'"use strict";globalThis.LAB_LAWS={built_in_laws()};\n(() => {{\n{bundle("app.js")}\n}})();'
    style = (_WEB / "style.css").read_text(encoding="utf-8")
    # A closing tag inside a string would end the script.
    script = script.replace("</script", "<\\/script")
    return page.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
