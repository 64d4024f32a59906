"""The oracle: in simulation, the true label is revealed on request, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Draw, Gathered, Query, as_label
from feal.data import PreparedSite, open_truth
from feal.errors import FealError


@ANNOTATORS.register("oracle", summary="simulation: the true label is revealed on request")
class Oracle(Annotator):
    """Answers at once with the truth of the prepared data."""

    def __init__(self, site: PreparedSite, *, folder: Path) -> None:
        self._site = site
        self._truth = open_truth(site)

    def check(self, *, allow_single_class: bool) -> None:
        if self._site.unlabelled:
            raise FealError(
                f"Site {self._site.name} has {self._site.unlabelled} training samples that nobody has labelled, "
                "and the oracle cannot answer for them: set annotator=folder, and initial=given to begin with the "
                "labels that are there."
            )
        self._truth.check()
        if self._site.task == "segmentation" or allow_single_class:
            return
        classes = self._truth.of(self._site.ids("train")).unique()
        if len(classes) == 1:
            name = self._site.classes[int(classes[0])]
            raise FealError(
                f"Every training sample of site {self._site.name} is of class '{name}', so nothing can be told "
                "apart there: merge it with another site, leave it out, or set allow_single_class=true."
            )

    def ask(self, queries: Sequence[Query], *, draw: Draw | None) -> None:
        """The truth needs no asking."""

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> Gathered:
        if not pending:
            return Gathered()
        truths = self._truth.of(pending).numpy()
        return Gathered(
            answers=[
                Answer(sample=sample, label=as_label(truth), by="oracle")
                for sample, truth in zip(pending, truths, strict=True)
            ]
        )
