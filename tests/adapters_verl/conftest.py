"""The tests of the adapter for verl need verl (`make test-verl`); without it there is nothing to collect."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).parent
_MISSING = [name for name in ("ray", "transfer_queue", "verl") if importlib.util.find_spec(name) is None]

collect_ignore_glob = ["*.py"] if _MISSING else []

if not _MISSING:
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    with warnings.catch_warnings():
        # Their modules warn on import, before a test could say that it doesn't mind.
        warnings.simplefilter("ignore")
        import verl.trainer.ppo.v1  # noqa: F401 - imported for its warnings

# Within verl, Ray, torch and transformers; all others are errors here as well.
_THEIRS = (
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:.*nested tensors.*:UserWarning",
    "ignore:.*engine is not available.*:UserWarning",
    "ignore:.*not writable.*:UserWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            for each in _THEIRS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.adapters_verl import fakes

    made = tmp_path_factory.mktemp("verl")
    fakes.write_model(made)
    return made


@pytest.fixture(scope="session")
def cluster(folder: Path) -> Iterator[Any]:
    from tests.adapters_verl import fakes

    with fakes.cluster(folder) as config:
        yield config


@pytest.fixture(scope="session")
def handles(cluster: Any) -> list[Any]:
    from tests.adapters_verl import fakes

    return fakes.reward_workers(cluster)


@pytest.fixture
def queue(cluster: Any) -> Iterator[None]:
    """TransferQueue without what an earlier test left in it."""
    from tests.adapters_verl import fakes

    fakes.clear()
    yield
    fakes.clear()
