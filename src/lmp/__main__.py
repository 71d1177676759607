"""``python -m lmp``."""

from lmp.cli.main import run

if __name__ == "__main__":
    run()
