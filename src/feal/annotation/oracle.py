"""The oracle: in simulation, the true label is revealed on request, and only then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Query
from feal.data import PreparedSite, open_truth


@ANNOTATORS.register("oracle", summary="simulation: the true label is revealed on request")
class Oracle(Annotator):
    """Answers at once with the truth of the prepared data."""

    def __init__(self, site: PreparedSite) -> None:
        self._truth = open_truth(site)

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        return self.poll([query.sample for query in queries])

    def poll(self, samples: Sequence[str]) -> list[Answer]:
        if not samples:
            return []
        truths = self._truth.of(samples).numpy()
        return [
            Answer(sample=sample, label=_plain(truth), by="oracle")
            for sample, truth in zip(samples, truths, strict=True)
        ]


def _plain(truth: np.ndarray | np.integer) -> int | np.ndarray:
    return truth.astype(np.uint8) if truth.ndim else int(truth)
