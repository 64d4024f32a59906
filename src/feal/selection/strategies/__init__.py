"""One strategy a file; importing this package registers them all."""

from feal.selection.strategies import badge, coreset, entropy, feal, gradnorm, kafal, logo, random, strata, tod  # noqa: F401
