"""Lets these tests use the small analyses of the store's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))
