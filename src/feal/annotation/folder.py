"""Ask people for labels through files: requests and answers are files, and there is no other state."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from pydantic import Field

from feal.annotation.answers import AnswerReader, list_entries
from feal.annotation.base import ANNOTATORS, Annotator, Answer, Entry, PollResult, PredictMasks, Query, Rejection
from feal.annotation.request import ANSWERS, write_request
from feal.data import PreparedSite
from feal.errors import FealError
from feal.fileio import write_text
from feal.registry import Parameters

ANNOTATION_FOLDER = "annotation"
"""The annotator's folder below the site's folder."""

REJECTED = "rejected.csv"

_ROUND = re.compile(r"round-([0-9]{3,9})")


def round_folder(site: Path, round_: int) -> Path:
    """Return the folder of a round's request below the site's folder."""
    return site / ANNOTATION_FOLDER / f"round-{round_:03}"


@ANNOTATORS.register("folder", summary="people, who find the request in the site's folder and answer with files")
class FolderAnnotator(Annotator):
    """People who read requests and write answers in `annotation/round-NNN/` below the site's folder."""

    class Params(Parameters):
        """When the labels that people give are enough to go on."""

        min_share: float = Field(
            1.0,
            gt=0,
            le=1,
            description="fraction of a round's samples that must be answered at a site before the run goes on",
        )
        poll_seconds: float = Field(
            10.0, gt=0, le=3600, description="seconds between two looks for answers (--wait)"
        )

    def __init__(self, site: PreparedSite, *, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._root = folder / ANNOTATION_FOLDER

    def check(self, *, allow_single_class: bool) -> None:
        """Accept any site: nothing is known in advance about people's answers."""

    def ask(self, queries: Sequence[Query], *, predict_masks: PredictMasks | None) -> None:
        """Write the request; a `FealError` if it cannot be written."""
        for round_, asked in groupby(queries, key=lambda query: query.round):
            write_request(self._site, round_folder(self._folder, round_), list(asked), predict_masks=predict_masks)

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> PollResult:
        """Read the answers; rejections are also written to `rejected.csv` for their author.

        The last answer about a sample counts: lower in the table, or in a later round's folder.
        """
        read = list(self._read_all({*pending, *answered}))
        last = {entry.sample: entry for entry in read}
        counting = [entry for entry in read if entry.sample is None or last[entry.sample] is entry]
        rejections = [entry for entry in counting if isinstance(entry, Rejection)]
        self._write_rejections(rejections)
        answers = [entry for entry in counting if isinstance(entry, Answer)]
        return PollResult(answers=sorted(answers, key=lambda answer: answer.sample), rejections=rejections)

    def _read_all(self, asked: set[str]) -> Iterator[Entry]:
        try:
            found = list_entries(self._root, self._root)
        except FealError as error:
            yield Rejection(where=ANNOTATION_FOLDER, reason=str(error))
            return
        rounds = sorted((int(match[1]), path) for path in found if (match := _ROUND.fullmatch(path.name)))
        for _, path in rounds:
            yield from AnswerReader(path, root=self._root, site=self._site, asked=asked).read()
        if any(path.name == ANSWERS for path in found):
            yield Rejection(where=ANSWERS, reason="Move this file into the folder of its round.")

    def _write_rejections(self, rejections: Sequence[Rejection]) -> None:
        path = self._root / REJECTED
        if not rejections:
            if path.is_file() or path.is_symlink():
                path.unlink()
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["where", "sample", "reason"])
        writer.writerows([rejection.where, rejection.written, rejection.reason] for rejection in rejections)
        write_text(path, text.getvalue())
