"""Run the command line: ``python -m paper``."""

from paper.cli import app

if __name__ == "__main__":
    app(prog_name="python -m paper")
