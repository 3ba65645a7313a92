"""Checkpoints that survive a kill at any moment: written aside, forced to disk, then renamed.

A folder of checkpoints holds ``step-00000100`` for each that is complete, beside names that end in
``.partial`` (being written or deleted) and ``.replaced`` (about to be replaced). A checkpoint of
step `s` is what a run needs to compute step `s` next: `s` steps are behind it.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ada_bandit.errors import AdaBanditError, InputError, ProtocolError, check_count
from ada_bandit.programs.folders import force, write_file
from llm.errors import CheckpointError
from llm.types import Response

__all__ = ["MAY_CHANGE", "Checkpoint", "Checkpoints"]

MAY_CHANGE = ("train.steps", "train.tokens", "train.max_unscored", "train.check_memory", "checkpoint", "log", "eval")
"""Parts of a config that may differ when a run is resumed: no step's result depends on them."""

_NAME = re.compile(r"step-(\d{8,})(\.replaced)?")
_STATE, _ROUND = "state.pt", "round.pt"
_DAMAGED = (EOFError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile)
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, *_DAMAGED)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    step: int
    """Steps behind it; also the number of the step that comes next, as the first is 0."""
    path: Path
    """Its folder, with what `write` of `Checkpoints.save` put there."""
    state: dict[str, Any]
    """What was passed as `state`: the same types and values."""


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
            The rest: nested dicts with text or whole numbers as keys, lists, tuples, numbers, text,
            None, NumPy arrays and responses.

        Returns
        -------
        Path
            The checkpoint's folder.

        Raises
        ------
        CheckpointError
            If it can't be written, for instance because the disk is full. What was written of it is
            deleted; the checkpoints before it are untouched.
        """
        path = self.folder_of(step)
        partial, replaced = _beside(path, "partial"), _beside(path, "replaced")
        with self._saving(partial):
            _delete(partial)
            partial.mkdir(parents=True)
            write(partial)
            with (partial / _STATE).open("wb") as file:
                _write_state(file, state)
            sizes = {each.relative_to(partial).as_posix(): each.stat().st_size for each in _files(partial)}
            document = {"step": step, "config": self.config, "files": sizes}
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
        complete = self._found()
        for step, path in sorted(complete.items(), reverse=True):
            try:
                config, state = _read(path, step)
            except _UNREADABLE as error:
                self._say(f"the checkpoint {str(path)!r} can't be read and is passed over: {_first_line(error)}")
                continue
            self._check_config(path, config)
            return Checkpoint(step, path, state)
        if complete:
            msg = (
                f"none of the {len(complete)} checkpoints in {str(self.folder)!r} can be read. Bring back a good copy, "
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
        file = path / _ROUND
        with self._saving(_beside(file, "partial")):
            write_file(file, lambda opened: _write_state(opened, {"number": number, "payload": payload}))

    def load_round(self, step: int) -> dict[str, Any] | None:
        """Return the payload that `save_round` saved last for a step; None where there is none that can be read."""
        file = self._found().get(step, self.folder_of(step)) / _ROUND
        if not file.exists():
            return None
        try:
            payload: dict[str, Any] = _read_state(file)["payload"]
        except _UNREADABLE as error:
            reason = _first_line(error)
            self._say(f"the rounds in {str(file)!r} can't be read, so the step is sampled from its start: {reason}")
            return None
        return payload

    def folder_of(self, step: int) -> Path:
        """Return the folder of a step's checkpoint, saved or not."""
        return self.folder / f"step-{check_count('step', step, 0):08d}"

    def _found(self) -> dict[int, Path]:
        """Return the complete checkpoints by their steps."""
        complete: dict[int, Path] = {}
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _NAME.fullmatch(path.name)
            # One that was about to be replaced counts where a kill came before its replacement was there.
            if match and not (match[2] and int(match[1]) in complete):
                complete[int(match[1])] = path
        return complete

    def _prune(self, step: int) -> None:
        # A later one can only be one that couldn't be read when the run was resumed: it must not push this one out.
        complete = self._found()
        for old in sorted(each for each in complete if each <= step)[: -self.keep]:
            path = complete[old]
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
            complete = self._found()
            kept = f"the checkpoint of step {max(complete)} is untouched" if complete else "there is no checkpoint yet"
            msg = (
                f"can't save into {str(self.folder)!r}: {error}; {kept}. Free space there or give another folder, "
                "then resume"
            )
            raise CheckpointError(msg) from error


def _print_warning(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


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
        actual = (path / name).stat().st_size
        if actual != size:
            msg = f"{name} has {actual} bytes in place of {size}"
            raise ValueError(msg)
    return document["config"], _read_state(path / _STATE)


def _write_state(file: IO[bytes], state: Mapping[str, Any]) -> None:
    import torch

    _check_storable(state)
    torch.save(state, file)


def _read_state(path: Path) -> Any:
    """Read what `_write_state` wrote; nothing but what `_check_storable` lets through is made of the file."""
    import torch

    # torch looks at no checksum.
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        msg = f"{damaged} has another CRC than it was written with"
        raise ValueError(msg)
    array = np.zeros(0)
    made_by = (Response, np.ndarray, np.dtype, bytes, array.__reduce__()[0], array.sum().__reduce__()[0])
    kinds = {type(np.dtype(kind)) for kind in "?bhilqBHILQefdU"}
    with torch.serialization.safe_globals([*made_by, *kinds]):
        return torch.load(path, weights_only=True)


def _check_storable(value: Any) -> None:
    if type(value) is dict:
        for key, each in value.items():
            _check_storable(key)
            _check_storable(each)
    elif type(value) in {list, tuple}:
        for each in value:
            _check_storable(each)
    elif not (
        value is None
        or type(value) in {bool, int, float, str, Response}
        or (isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufU")
    ):
        msg = f"a state holds dicts, lists, numbers, text, None, responses and arrays of numbers or text; got {value!r}"
        raise InputError(msg)


def _first_line(error: Exception) -> str:
    # torch explains at length how to read a file by other means.
    return str(error).strip().partition("\n")[0]


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
