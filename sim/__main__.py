"""Run the command line: ``python -m sim``."""

from ada_bandit.programs.start import start

if __name__ == "__main__":
    start(f"{__package__}.cli", "python -m sim", "make demo installs it; then call .venv/bin/python -m sim")
