"""One strategy a file; importing this package registers them all."""

from feal.selection.strategies import entropy, feal, full, gradnorm, kafal, logo, random, strata, tod

__all__ = ["entropy", "feal", "full", "gradnorm", "kafal", "logo", "random", "strata", "tod"]
