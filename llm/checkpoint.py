"""Checkpoints that survive a kill at any moment: written aside, forced to disk, then renamed.

A folder of checkpoints holds ``step-00000100`` for each that is complete, beside names that end in
``.partial`` (being written or deleted) and ``.replaced`` (about to be replaced). A checkpoint of
step `s` is what a run needs to compute step `s` next: `s` steps are behind it.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np

from ada_bandit.errors import AdaBanditError, InputError, ProtocolError, check_count
from llm.types import Response

__all__ = [
    "MAY_CHANGE",
    "Checkpoint",
    "CheckpointError",
    "Checkpoints",
    "force",
    "write_file",
    "write_text",
]

MAY_CHANGE = ("train.steps", "train.tokens", "checkpoint", "log", "eval")
"""Parts of a config that may differ when a run is resumed: no step's result depends on them."""

_NAME = re.compile(r"step-(\d{8,})(\.replaced)?")
_ROUND = "round.npz"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile)


class CheckpointError(AdaBanditError, RuntimeError):
    """A checkpoint can't be saved, or none of those that are there can be read."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    """Steps behind it; also the number of the step that comes next, as the first is 0."""
    path: Path
    """Its folder, with what `write` of `Checkpoints.save` put there."""
    state: dict[str, Any]
    """What was passed as `state`: tuples have become lists, arrays are arrays again."""


class Checkpoints:
    """The checkpoints of one run.

    Parameters
    ----------
    folder
        Where they lie; made when the first is saved.
    keep
        Latest checkpoints that are kept, at least 1.
    config
        The run's config as nested plain values. It is stored in each checkpoint, and one of
        another config is refused, apart from `MAY_CHANGE`.
    say
        Called with one line of text when a checkpoint can't be read and is passed over; prints on
        standard error by default.
    """

    def __init__(
        self, folder: Path, keep: int, config: Mapping[str, Any], say: Callable[[str], None] | None = None
    ) -> None:
        self.folder = folder
        self.keep = check_count("keep", keep)
        # What JSON makes of it, such as lists of tuples, is what a stored config is compared with.
        self.config: dict[str, Any] = json.loads(json.dumps(config))
        self._say = say or _print_warning

    def save(self, step: int, write: Callable[[Path], None], state: Mapping[str, Any]) -> Path:
        """Save a checkpoint, and delete those that are too many.

        Parameters
        ----------
        step
            Steps behind it.
        write
            Writes the model, the optimizer and whatever else is large into the folder it is given.
        state
            The rest: nested dicts with text or whole numbers as keys, lists, numbers, text, None,
            NumPy arrays and responses.

        Returns
        -------
        Path
            The checkpoint's folder.

        Raises
        ------
        CheckpointError
            If it can't be written, for want of space for instance. What was written of it is
            deleted; the checkpoints before it are untouched.
        """
        path = self.folder_of(step)
        partial, replaced = _beside(path, "partial"), _beside(path, "replaced")
        with self._saving(partial):
            _delete(partial)
            partial.mkdir(parents=True)
            write(partial)
            packed = _Packed()
            plain = packed.pack(state)
            with (partial / "state.npz").open("wb") as file:
                np.savez(file, **packed.arrays())
            sizes = {each.relative_to(partial).as_posix(): each.stat().st_size for each in _files(partial)}
            document = {"step": step, "config": self.config, "files": sizes, "state": plain}
            (partial / "state.json").write_text(json.dumps(document), encoding="utf-8")
            _force_tree(partial)
            if path.exists():
                # A folder can't be renamed onto another one; after a kill in between, `_found` finds the old.
                _delete(replaced)
                path.rename(replaced)
            partial.rename(path)
            force(self.folder)
        self._prune(step)
        return path

    def latest(self) -> Checkpoint | None:
        """Return the latest checkpoint that can be read, None where there is none at all.

        Those that can't be read (damaged, or files missing) are passed over, which `say` tells.

        Raises
        ------
        InputError
            If it is of another config.
        CheckpointError
            If there are checkpoints, but none can be read.
        """
        found = self._found()
        for step, path in sorted(found.items(), reverse=True):
            try:
                config, state = _read(path, step)
            except _UNREADABLE as error:
                self._say(f"the checkpoint {str(path)!r} can't be read and is passed over: {error}")
                continue
            self._check_config(path, config)
            return Checkpoint(step, path, state)
        if found:
            msg = (
                f"none of the {len(found)} checkpoints in {str(self.folder)!r} can be read. Bring back a good copy, "
                "or start the run anew in another folder"
            )
            raise CheckpointError(msg)
        return None

    def save_round(self, step: int, number: int, payload: Mapping[str, Any]) -> None:
        """Save what the step that starts at a checkpoint has sampled so far.

        It takes the place of what was saved for the step's rounds before, and is deleted with the
        checkpoint.

        Parameters
        ----------
        step
            The step, which is that of a checkpoint.
        number
            Rounds that are over, stored beside it.
        payload
            All of what they brought; it may hold what `state` of `save` may.

        Raises
        ------
        ProtocolError
            If there is no checkpoint of this step.
        CheckpointError
            If it can't be written; what was saved before is untouched.
        """
        path = self._found().get(step)
        if path is None:
            msg = f"step {step} does not start at a checkpoint of {str(self.folder)!r}; save one before its rounds"
            raise ProtocolError(msg)
        packed = _Packed()
        plain = json.dumps({"number": number, "payload": packed.pack(payload)})
        text = np.frombuffer(plain.encode(), dtype=np.uint8)
        file = path / _ROUND
        with self._saving(_beside(file, "partial")):
            write_file(file, lambda opened: np.savez(opened, json=text, **packed.arrays()))

    def load_round(self, step: int) -> dict[str, Any] | None:
        """Return the payload that `save_round` saved last for a step; None where there is none that can be read."""
        file = self._found().get(step, self.folder_of(step)) / _ROUND
        if not file.exists():
            return None
        try:
            arrays = _load(file)
            document = json.loads(arrays["json"].tobytes())
            payload: dict[str, Any] = _unpack(document["payload"], arrays)
        except _UNREADABLE as error:
            self._say(f"the rounds in {str(file)!r} can't be read, so the step is sampled from its start: {error}")
            return None
        return payload

    def folder_of(self, step: int) -> Path:
        """Return the folder of a step's checkpoint, saved or not."""
        return self.folder / f"step-{check_count('step', step, 0):08d}"

    def _found(self) -> dict[int, Path]:
        """Return the complete checkpoints by their steps."""
        found: dict[int, Path] = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            # One that was about to be replaced counts where a kill came before its replacement was there.
            if match and not (match[2] and int(match[1]) in found):
                found[int(match[1])] = path
        return found

    def _prune(self, step: int) -> None:
        # A later one can only be one that couldn't be read when the run was resumed: it must not push this one out.
        found = self._found()
        for old in sorted(each for each in found if each <= step)[: -self.keep]:
            path = found[old]
            # A kill while a folder is deleted must not leave half of it under the name of a complete one.
            aside = _beside(path, "partial")
            _delete(aside)
            path.rename(aside)
        left = self._found().values()
        for each in (*self.folder.glob("step-*.partial"), *self.folder.glob("step-*.replaced")):
            if each not in left:
                _delete(each)

    def _check_config(self, path: Path, theirs: Mapping[str, Any]) -> None:
        old, new = _fixed(theirs), _fixed(self.config)
        missing = "nothing"
        differing = [
            f"{key} was {old.get(key, missing)!r}, now is {new.get(key, missing)!r}"
            for key in [*old, *(key for key in new if key not in old)]
            if old.get(key, missing) != new.get(key, missing)
        ]
        if differing:
            shown = "; ".join(differing[:5]) + (f"; and {len(differing) - 5} more" if len(differing) > 5 else "")
            msg = (
                f"the checkpoint {str(path)!r} is of another config: {shown}. "
                "Resume with the config it was made with, or give another output folder"
            )
            raise InputError(msg)

    @contextmanager
    def _saving(self, partial: Path) -> Iterator[None]:
        """Delete what was written when it fails, and turn a failure of the disk into an error that says so."""
        try:
            yield
        except Exception as error:
            _delete(partial)
            # torch and safetensors have errors of their own for a full disk.
            of_disk = isinstance(error, (OSError, RuntimeError)) or type(error).__name__ == "SafetensorError"
            if isinstance(error, AdaBanditError) or not of_disk:
                raise
            found = self._found()
            kept = f"the checkpoint of step {max(found)} is untouched" if found else "there is no checkpoint yet"
            msg = (
                f"can't save into {str(self.folder)!r}: {error}; {kept}. Free space there or give another folder, "
                "then resume"
            )
            raise CheckpointError(msg) from error


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that a kill leaves the old one or the new one, never a part.

    Parameters
    ----------
    path
        The file, which is replaced.
    write
        Writes the contents into the open file it is given.
    """
    partial = _beside(path, "partial")
    with partial.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    force(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a text file as `write_file` does."""
    write_file(path, lambda file: file.write(text.encode()))


def force(path: Path) -> None:
    """Have the system write a file's contents, or a folder's names, to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _print_warning(text: str) -> None:
    from llm.options import console

    console(stderr=True).print(f"warning: {text}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}.{ending}")


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file())


def _force_tree(folder: Path) -> None:
    for each in (*folder.rglob("*"), folder):
        force(each)


def _read(path: Path, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a checkpoint's config and state; raise one of `_UNREADABLE` where it is damaged."""
    document = json.loads((path / "state.json").read_text(encoding="utf-8"))
    if document["step"] != step:
        msg = f"it says to be of step {document['step']}"
        raise ValueError(msg)
    for name, size in document["files"].items():
        found = (path / name).stat().st_size
        if found != size:
            msg = f"{name} has {found} bytes in place of {size}"
            raise ValueError(msg)
    return document["config"], _unpack(document["state"], _load(path / "state.npz"))


def _load(path: Path) -> dict[str, Any]:
    # NumPy, given a path, leaves the file open where it is damaged.
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


class _Packed:
    """A nested value as JSON and a few long arrays: many short ones would be slow to store one by one.

    What JSON lacks is an object with one key: ``#array`` (type, first entry and shape within the
    long array of that type), ``#items`` (a dict whose keys aren't all text) and ``#response``.
    """

    def __init__(self) -> None:
        self._parts: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}

    def arrays(self) -> dict[str, Any]:
        """Return the long arrays by their type."""
        return {kind: np.concatenate(parts) for kind, parts in self._parts.items()}

    def pack(self, value: Any) -> Any:
        """Return what JSON can hold of `value`; its arrays are kept back."""
        if isinstance(value, Response):
            return {"#response": [self.pack(getattr(value, each.name)) for each in fields(Response)]}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufU":
            return {"#array": self._add(value)}
        if isinstance(value, np.generic):
            return self.pack(value.item())
        if isinstance(value, Mapping) and all(isinstance(key, str) and key[:1] != "#" for key in value):
            return {key: self.pack(each) for key, each in value.items()}
        if isinstance(value, Mapping):
            return {"#items": [[self.pack(key), self.pack(each)] for key, each in value.items()]}
        if isinstance(value, (list, tuple)):
            return [self.pack(each) for each in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        msg = f"a state holds dicts, lists, numbers, text, None, responses and arrays of numbers or text; got {value!r}"
        raise InputError(msg)

    def _add(self, array: Any) -> list[Any]:
        kind = array.dtype.newbyteorder("=").str[1:]
        first = self._sizes.get(kind, 0)
        self._parts.setdefault(kind, []).append(array.ravel())
        self._sizes[kind] = first + array.size
        return [kind, first, list(array.shape)]


def _unpack(value: Any, arrays: Mapping[str, Any]) -> Any:
    """Undo `_Packed.pack`."""
    if isinstance(value, list):
        return [_unpack(each, arrays) for each in value]
    if not isinstance(value, dict):
        return value
    if "#response" in value:
        return Response(*_unpack(value["#response"], arrays))
    if "#items" in value:
        return dict(_unpack(value["#items"], arrays))
    if "#array" in value:
        kind, first, shape = value["#array"]
        return arrays[kind][first : first + math.prod(shape)].reshape(shape).copy()
    return {key: _unpack(each, arrays) for key, each in value.items()}


def _fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config that may not change, by dotted name."""
    flat: dict[str, Any] = {}
    _flatten(config, "", flat)
    return flat


def _flatten(config: Mapping[str, Any], before: str, flat: dict[str, Any]) -> None:
    for key, value in config.items():
        name = f"{before}{key}"
        if name in MAY_CHANGE:
            continue
        if isinstance(value, Mapping):
            _flatten(value, f"{name}.", flat)
        else:
            flat[name] = value
