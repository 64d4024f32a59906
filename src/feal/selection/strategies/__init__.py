"""One strategy a file; importing this package registers them all."""

from feal.selection.strategies import feal, full, gradnorm, random

__all__ = ["feal", "full", "gradnorm", "random"]
