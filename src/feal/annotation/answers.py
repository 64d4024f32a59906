"""What a round's folder says: labels from its sheet, masks from its pictures, each thing said one word."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from feal.annotation.contract import Answer, Refusal
from feal.annotation.reach import check_file, entries, within
from feal.annotation.request import ANSWERS, MASKS, REQUEST, pictures_of
from feal.annotation.sheet import Line, read_sheet
from feal.annotation.wording import read_label
from feal.data import PreparedSite
from feal.data.pictures import read_mask
from feal.errors import FealError

NOBODY = "folder"
"""Who answered, where the sheet does not say."""

_MISPLACED = (".csv", ".tsv", ".xls", ".xlsx", ".ods", ".png")


@dataclass(frozen=True)
class Word:
    """One thing that was said, about a sample that was asked for or (None) about none."""

    about: str | None
    content: Answer | Refusal


class Answers:
    """Reads one round's folder; what is wrong with it is among the words, never an exception.

    A later word about a sample stands for the earlier ones, a refused one too: what somebody wanted to correct
    is not taken.
    """

    def __init__(self, folder: Path, *, root: Path, site: PreparedSite, asked: Collection[str]) -> None:
        self._folder = folder
        self._root = root
        self._site = site
        self._asked = asked
        self._by: dict[str, str] = {}

    def words(self) -> list[Word]:
        """Everything that is said, in its order."""
        try:
            words = [*self._misplaced(entries(self._folder, self._root)), *self._lines()]
            return words if self._site.task == "classification" else [*words, *self._masks(words)]
        except FealError as error:
            return [self._refused("", str(error))]
        except OSError as error:
            return [self._refused("", f"This folder cannot be read ({error.strerror}).")]

    def _misplaced(self, found: list[Path]) -> Iterator[Word]:
        names = {path.name for path in found}
        for path in found:
            known = path.name in (REQUEST, ANSWERS)
            if path.suffix.lower() in _MISPLACED and not known and path.is_file():
                place = f"the folder {MASKS}" if path.suffix.lower() == ".png" else f"a file {ANSWERS}"
                yield self._refused(path.name, f"Nothing of this name is read here: answers go into {place}.")
        if REQUEST in names and ANSWERS not in names and self._has_labels():
            yield self._refused(REQUEST, f"Labels are not read from here: save the filled-in sheet as {ANSWERS}.")

    def _has_labels(self) -> bool:
        path = self._folder / REQUEST
        try:
            check_file(path, self._root)
            return any(line.cells["label"].strip() for line in read_sheet(path, needed=("sample", "label")))
        except FealError:
            return False

    def _lines(self) -> Iterator[Word]:
        path = self._folder / ANSWERS
        if not path.exists() and not path.is_symlink():
            return
        try:
            check_file(path, self._root)
            lines = read_sheet(path, needed=("sample", "label"), optional=("by",))
        except FealError as error:
            yield self._refused(ANSWERS, str(error))
            return
        for line in lines:
            word = self._line(line)
            if word is not None:
                yield word

    def _line(self, line: Line) -> Word | None:
        written, label = line.cells["sample"], line.cells["label"].strip()
        sample = self._known(written)
        if sample is not None and line.cells.get("by", "").strip():
            self._by[sample] = line.cells["by"].strip()
        if not label and not line.problem:
            return None
        if line.problem or sample is None:
            why = line.problem or _not_asked(written)
            return self._refused(f"{ANSWERS}, line {line.number}", why, sample=written, about=sample)
        try:
            number = read_label(label, self._site.classes)
            if number is not None and self._site.task == "segmentation":
                raise FealError(
                    f"Here a label is a mask in the folder {MASKS}: leave this empty, or write 'cannot'."
                )
        except FealError as error:
            return self._refused(f"{ANSWERS}, line {line.number}", str(error), sample=written, about=sample)
        return Word(sample, Answer(sample=sample, label=number, by=line.cells.get("by", "").strip() or NOBODY))

    def _masks(self, words: list[Word]) -> Iterator[Word]:
        try:
            files = entries(self._folder / MASKS, self._root)
            samples = self._pictures() if files else {}
        except FealError as error:
            yield self._refused(MASKS, str(error))
            return
        spoken = {word.about for word in words if word.about is not None}
        for path in files:
            word = self._mask(path, samples)
            if word.about is not None and word.about in spoken:
                why = f"This round's {ANSWERS}, or another mask, answers for this sample too: keep one of them."
                word = self._refused(f"{MASKS}/{path.name}", why, sample=word.about, about=word.about)
            if word.about is not None:
                spoken.add(word.about)
            yield word

    def _pictures(self) -> dict[str, str]:
        path = self._folder / REQUEST
        if not path.is_file() or not within(path, self._root):
            raise FealError(
                f"The {REQUEST} beside this is missing, which says whose masks these are: put it back."
            )
        try:
            return pictures_of(path)
        except FealError as error:
            raise FealError(
                f"The {REQUEST} beside this does not say any more whose masks these are: {error}"
            ) from None

    def _mask(self, path: Path, samples: dict[str, str]) -> Word:
        where = f"{MASKS}/{path.name}"
        written = samples.get(path.name.lower())
        sample = None if written is None else self._known(written)
        try:
            check_file(path, self._root)
            if written is None:
                raise FealError("No picture of this round has this file name: name a mask like its picture.")
            if sample is None:
                raise FealError(_not_asked(written))
            _, height, width = self._site.shape
            mask = read_mask(path, shape=(height, width), classes=len(self._site.classes))
        except FealError as error:
            return self._refused(where, str(error), sample=written or "", about=sample)
        return Word(sample, Answer(sample=sample, label=mask, by=self._by.get(sample, NOBODY)))

    def _known(self, written: str) -> str | None:
        return next((sample for sample in (written, written.strip()) if sample in self._asked), None)

    def _refused(self, where: str, why: str, *, sample: str = "", about: str | None = None) -> Word:
        place = f"{self._folder.name}/{where}" if where else self._folder.name
        # A file's name may be bytes that are no text.
        place = place.encode(errors="backslashreplace").decode()
        return Word(about, Refusal(where=place, sample=sample, why=why))


def _not_asked(written: str) -> str:
    name = written.strip()
    return f"Sample '{name}' was never asked for here: check its name." if name else "The line names no sample."
