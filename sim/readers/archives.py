"""Files that need more than text: inspect's archives, and what torch saved."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ada_bandit.errors import InputError
from sim.readers.batches import Batch, Table, in_batches
from sim.readers.streams import FREE_GROWTH, LARGEST_WHOLE, MOST_GROWTH, named, shown
from sim.readers.values import parse_json

__all__ = ["eval_archive", "torch_file"]


def eval_archive(path: Path) -> Table:
    """Open an ``.eval`` file of inspect: an archive with a JSON file for each sample.

    Raises
    ------
    InputError
        If it isn't one, or unpacks to more than it should.
    """
    other = f"Write it as JSON and give that: inspect log convert {path.name} --to json --output-dir logs"
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(
                each for each in archive.namelist() if each.startswith("samples/") and each.endswith(".json")
            )
            size = sum(archive.getinfo(each).file_size for each in names)
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        msg = f"{named(path)} is no archive of inspect: {shown(str(error))}. {other}"
        raise InputError(msg) from error
    if size > FREE_GROWTH and size > MOST_GROWTH * path.stat().st_size:
        msg = f"{named(path)} unpacks to more than {MOST_GROWTH} times its size. {other}"
        raise InputError(msg)
    if not names:
        msg = f"{named(path)} holds no samples; was the evaluation run with --no-log-samples? {other}"
        raise InputError(msg)

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:  # noqa: ARG001 - one way
        with zipfile.ZipFile(path) as archive:
            for number, name in enumerate(names, start=1):
                place = f"in {shown(name)} of {named(path)}"
                row = parse_json(_member(archive, name, place, other), place)
                rows = [_slim(row)] if isinstance(row, dict) else []
                yield Batch(None, rows, partial(_always, place), number / len(names))

    head = [row for batch, _ in zip(read(None), range(20), strict=False) for row in batch.rows or []]
    return Table(path, "an archive of inspect", head, read)


def _always(place: str, row: int) -> str:  # noqa: ARG001 - a sample has one row
    return place


def _member(archive: zipfile.ZipFile, name: str, place: str, other: str) -> bytes:
    try:
        with archive.open(name) as member:
            data = member.read(LARGEST_WHOLE + 1)
    except (zipfile.BadZipFile, NotImplementedError, OSError, zlib.error, EOFError, RuntimeError) as error:
        msg = f"can't unpack a sample {place}: {shown(str(error))}. {other}"
        raise InputError(msg) from error
    if len(data) > LARGEST_WHOLE:
        msg = f"a sample of more than {LARGEST_WHOLE >> 20} MiB {place}; it is not read. {other}"
        raise InputError(msg)
    return data


def _slim(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out a sample's messages and events, which may be long."""
    return {key: value for key, value in row.items() if key not in {"messages", "events", "attachments", "store"}}


def torch_file(path: Path) -> Table:
    """Open a ``.pt`` file without running anything that is in it.

    Raises
    ------
    InputError
        If torch isn't there, or the file holds more than plain values and tensors.
    """
    try:
        import torch
    except ImportError:
        msg = f"{named(path)} needs torch to be read: pip install torch; or write it as JSON Lines where it was made"
        raise InputError(msg) from None
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, of pickle and of its own
        msg = (
            f"{named(path)} holds more than plain values, and objects that run code when they are read aren't opened. "
            "Write it as JSON Lines where it was made, one sample a line"
        )
        raise InputError(msg) from error
    rows = [value] if isinstance(value, dict) else value
    if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        msg = f"{named(path)} holds {shown(type(value).__name__)} and no samples; give a rollout dump of slime"
        raise InputError(msg)

    def read(wanted: Mapping[str, str | None] | None) -> Iterator[Batch]:  # noqa: ARG001 - one way
        return in_batches(path, rows)

    return Table(path, "a file of torch", rows[:20], read)
