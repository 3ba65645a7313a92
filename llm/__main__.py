"""Run the command line: ``python -m llm``."""

from ada_bandit.programs.start import start

if __name__ == "__main__":
    start(f"{__package__}.cli", "python -m llm", "make train-demo installs it; then call .venv/bin/python -m llm")
