"""Where things lie."""

from pathlib import Path

PROJECT = Path(__file__).parents[1]
