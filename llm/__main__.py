"""Run the command line: ``python -m llm``."""

from llm.cli import app

if __name__ == "__main__":
    app(prog_name="python -m llm")
