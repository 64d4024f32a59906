"""One strategy a file; importing this package registers them all."""

from feal.selection.strategies import feal, random

__all__ = ["feal", "random"]
