"""One strategy a file; importing this package registers them all."""

from feal.selection.strategies import feal, full, random

__all__ = ["feal", "full", "random"]
