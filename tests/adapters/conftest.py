"""The tests of the adapters need torch and TRL (`make test-trl`); without them there is nothing to collect."""

import importlib.util
import warnings
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_MISSING = [name for name in ("torch", "trl") if importlib.util.find_spec(name) is None]

collect_ignore_glob = ["*.py"] if _MISSING else []

if not _MISSING:
    with warnings.catch_warnings():
        # Their modules warn on import, before a test could say that it doesn't mind.
        warnings.simplefilter("ignore")
        import trl  # noqa: F401 - imported for its warnings
        from trl import GRPOTrainer  # noqa: F401

# Deprecations within TRL, transformers and torch; all others are errors here as well.
_THEIRS = (
    "ignore:.*is deprecated and will be removed:FutureWarning",
    "ignore:.*pin_memory.*:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            for each in _THEIRS:
                item.add_marker(pytest.mark.filterwarnings(each))
