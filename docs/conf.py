"""The site's configuration: `make docs` builds it into out/site, without a network at view time."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

project = "ada_bandit"
author = "The ada_bandit authors"
release = version = installed("ada_bandit")
project_copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "reference_pages",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "smollm2_demo/*.md"]
myst_heading_anchors = 4
# Math stands in plain text, and single backticks in docstrings mark names.
default_role = "literal"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_mock_imports = ["torch", "transformers", "trl", "verl", "vllm", "ray", "tensordict", "datasets", "omegaconf"]
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = "ada_bandit"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
# Fonts are those of the reader's system; nothing is fetched when a page is viewed.
html_theme_options = {"top_of_page_buttons": []}
