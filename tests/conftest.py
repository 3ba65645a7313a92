"""Hypothesis profiles; HYPOTHESIS_PROFILE chooses one by name."""

import os

from hypothesis import HealthCheck, settings

# No deadline: the first call of a kernel compiles it. Naive twins are slow on purpose.
for _name, _examples in (("dev", 50), ("ci", 300), ("thorough", 5000)):
    settings.register_profile(
        _name,
        max_examples=_examples,
        deadline=None,
        derandomize=_name == "ci",
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
