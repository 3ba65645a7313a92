"""Run the command line: ``python -m paper``."""

from ada_bandit.programs.start import start

if __name__ == "__main__":
    start(f"{__package__}.cli", "python -m paper", "make demo installs it; then call .venv/bin/python -m paper")
