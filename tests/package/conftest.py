"""These tests install packages from a registry into an environment of their own: ``make package`` asks for them."""

import os

collect_ignore_glob = [] if os.environ.get("ADA_BANDIT_PACKAGE") else ["*.py"]
