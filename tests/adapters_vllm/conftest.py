"""The tests of the adapter on a real engine need vLLM and TRL (`make test-vllm`)."""

import importlib.util
import warnings

_MISSING = [name for name in ("torch", "trl", "vllm") if importlib.util.find_spec(name) is None]

collect_ignore_glob = ["*.py"] if _MISSING else []

if not _MISSING:
    with warnings.catch_warnings():
        # TRL names the versions of vLLM that it was tested with, and both warn of their own code.
        warnings.simplefilter("ignore")
        import vllm  # noqa: F401 - imported for its warnings
        from trl import GRPOTrainer  # noqa: F401
        from trl.generation import vllm_generation  # noqa: F401
