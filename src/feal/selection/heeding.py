"""Which settings change nothing: runs that differ in these only are the same run."""

from __future__ import annotations

from feal.selection.named import strategy_named
from feal.settings import Settings, flatten

OF_EVERY_RUN = ("selection.batch_size", "selection.candidates")
"""Settings of the selection that the site itself heeds, whatever the strategy."""
OF_THE_EVIDENTIAL_LOSS = ("evidence.lambda", "evidence.annealing")


def unheeded(settings: Settings) -> frozenset[str]:
    """Dotted names of settings that neither the strategy of such a run nor its loss looks at.

    Raises:
        FealError: there is no such strategy here.

    >>> from feal.config import load
    >>> sorted(unheeded(load("demo", {"strategy": "gradnorm"})))[:3]
    ['evidence.annealing', 'evidence.lambda', 'selection.calibration']
    """
    strategy = strategy_named(settings.strategy)
    spare = [key for key in flatten(settings.dump()) if key.startswith("selection.") and key not in OF_EVERY_RUN]
    if settings.loss != "evidential":
        spare += OF_THE_EVIDENTIAL_LOSS
    return frozenset(key for key in spare if not strategy.heeds(key))
