"""People as annotators: a request is written as files, answers are files, and nothing else is remembered."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from feal.annotation.answers import Answers, Word
from feal.annotation.contract import ANNOTATORS, Annotator, Answer, Draw, Gathered, Query, Refusal
from feal.annotation.reach import entries
from feal.annotation.request import ANSWERS, write_request
from feal.data import PreparedSite
from feal.errors import FealError
from feal.files import write_text

FOLDER = "annotation"
"""Name of the annotator's folder below the site's."""

REFUSED = "refused.csv"

_ROUND = re.compile(r"round-([0-9]{3,9})")


def round_folder(site: Path, round_: int) -> Path:
    """Where a site's request of a round lies, below the site's folder."""
    return site / FOLDER / f"round-{round_:03}"


@ANNOTATORS.register("folder", summary="people: they find the request in the site's folder and answer with files")
class FolderAnnotator(Annotator):
    """Requests and answers as files in `annotation/round-NNN/` below the site's folder."""

    def __init__(self, site: PreparedSite, *, folder: Path) -> None:
        self._site = site
        self._folder = folder
        self._root = folder / FOLDER

    def check(self, *, allow_single_class: bool) -> None:
        """Nothing is known beforehand of what people will say."""

    def ask(self, queries: Sequence[Query], *, draw: Draw | None) -> None:
        """Write the request; raises a `FealError` where the disk refuses."""
        for round_, asked in groupby(queries, key=lambda query: query.round):
            write_request(self._site, round_folder(self._folder, round_), list(asked), draw=draw)

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> Gathered:
        """What the files say now; refusals are also written to `refused.csv` for whoever answered.

        The last word about a sample counts: lower in the sheet, or in a later round's folder.
        """
        words = list(self._words({*pending, *answered}))
        last = {word.about: word for word in words if word.about is not None}
        counting = [word.content for word in words if word.about is None or last[word.about] is word]
        refusals = [content for content in counting if isinstance(content, Refusal)]
        self._tell(refusals)
        answers = [content for content in counting if isinstance(content, Answer)]
        return Gathered(answers=sorted(answers, key=lambda answer: answer.sample), refusals=refusals)

    def _words(self, asked: set[str]) -> Iterator[Word]:
        try:
            found = entries(self._root, self._root)
        except FealError as error:
            yield Word(None, Refusal(where=FOLDER, sample="", why=str(error)))
            return
        rounds = sorted((int(match[1]), path) for path in found if (match := _ROUND.fullmatch(path.name)))
        for _, path in rounds:
            yield from Answers(path, root=self._root, site=self._site, asked=asked).words()
        if any(path.name == ANSWERS for path in found):
            yield Word(None, Refusal(where=ANSWERS, sample="", why="Put this file into the folder of its round."))

    def _tell(self, refusals: Sequence[Refusal]) -> None:
        path = self._root / REFUSED
        if not refusals:
            if path.is_file() or path.is_symlink():
                path.unlink()
            return
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["where", "sample", "why"])
        writer.writerows([refusal.where, refusal.sample, refusal.why] for refusal in refusals)
        write_text(path, text.getvalue())
