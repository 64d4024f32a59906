"""Simulate an annotator: reveal the true label of a sample on request."""

from collections.abc import Sequence
from pathlib import Path

from feal.annotation.base import ANNOTATORS, Annotator, Answer, PollResult, PredictMasks, Query, to_label
from feal.data import PreparedSite, open_labels
from feal.errors import FealError


@ANNOTATORS.register("oracle", summary="simulation: the true label is revealed on request")
class Oracle(Annotator):
    """An annotator that answers at once with the labels of the prepared data."""

    def __init__(self, site: PreparedSite, *, folder: Path) -> None:
        self._site = site
        self._labels = open_labels(site)

    def check(self, *, allow_single_class: bool) -> None:
        if self._site.unlabelled:
            raise FealError(
                f"Site {self._site.name} has {self._site.unlabelled} unlabelled training samples, "
                "for which the oracle has no answer: set annotator=folder, and initial_labels=dataset to "
                "start with the existing labels."
            )
        self._labels.check()
        if self._site.task == "segmentation" or allow_single_class:
            return
        classes = self._labels.of(self._site.ids("train")).unique()
        if len(classes) == 1:
            name = self._site.classes[int(classes[0])]
            raise FealError(
                f"Every training sample of site {self._site.name} is of class '{name}', so nothing can be "
                "learned there: merge it with another site, leave it out, or set allow_single_class=true."
            )

    def ask(self, queries: Sequence[Query], *, predict_masks: PredictMasks | None) -> None:
        """Do nothing: the labels are known."""

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> PollResult:
        if not pending:
            return PollResult()
        labels = self._labels.of(pending).numpy()
        return PollResult(
            answers=[
                Answer(sample=sample, label=to_label(label), by="oracle")
                for sample, label in zip(pending, labels, strict=True)
            ]
        )
