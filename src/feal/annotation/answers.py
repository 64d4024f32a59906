"""Read one round's answers: labels from answers.csv, masks from masks/."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.annotation.base import Answer, Rejection
from feal.annotation.files import SheetRow, check_file, is_inside, list_entries, read_sheet
from feal.annotation.request import ANSWERS, MASKS, REQUEST, read_requested_images
from feal.data import PreparedSite
from feal.data.images import read_mask
from feal.errors import FealError, unknown_name_error

CANNOT = ("cannot", "cannot be labelled", "cannot be labeled", "unlabelable", "unlabellable")

# Spreadsheets and pandas write whole numbers as 1.0 where a cell of the column is empty.
_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?")
_LONGEST = 60


def parse_label(text: str, classes: Sequence[str]) -> int | None:
    """Parse a label to a class number, or None if the sample cannot be labelled.

    Names take precedence over numbers, in case a class is named by a number; case does not matter.

    Raises:
        FealError: it is not a class; addressed to its author.

    >>> classes = ["nevus", "melanoma"]
    >>> [parse_label(text, classes) for text in (" Melanoma ", "0", "1.0", "Cannot be labelled")]
    [1, 0, 1, None]
    """
    text = text.strip()
    if text in classes:
        return classes.index(text)
    named = [number for number, name in enumerate(classes) if name.strip().casefold() == text.casefold()]
    if len(named) == 1:
        return named[0]
    if text.casefold() in CANNOT:
        return None
    number = _NUMBER.fullmatch(text)
    if number and len(number[1]) < 9 and int(number[1]) < len(classes):
        return int(number[1])
    raise _class_error(text, classes, is_number=bool(number))


def _class_error(text: str, classes: Sequence[str], *, is_number: bool) -> FealError:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    numbers = f"a number from 0 to {len(classes) - 1}"
    if is_number:
        return FealError(f"There is no class {shown}: write {numbers}, or a class's name.")
    return FealError(f"{unknown_name_error('class', shown, classes)} Or write {numbers}, or 'cannot'.")


DEFAULT_AUTHOR = "folder"
"""The author of an answer that names none."""

_MISPLACED = (".csv", ".tsv", ".xls", ".xlsx", ".ods", ".png")


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer or a rejection, for a queried sample or (None) for no known one."""

    sample_id: str | None
    content: Answer | Rejection


class AnswerReader:
    """A reader of one round's folder; problems become rejections, never exceptions.

    If a sample is answered twice the last entry wins, even a rejected one: an answer that its author
    tried to correct is never used.
    """

    def __init__(self, folder: Path, *, root: Path, site: PreparedSite, asked: Collection[str]) -> None:
        self._folder = folder
        self._root = root
        self._site = site
        self._asked = asked
        self._by: dict[str, str] = {}

    def read(self) -> list[ParsedAnswer]:
        """Read all answers in their order."""
        try:
            read = [*self._find_misplaced(list_entries(self._folder, self._root)), *self._read_table()]
            return read if self._site.task == "classification" else [*read, *self._read_masks(read)]
        except FealError as error:
            return [self._reject("", str(error))]
        except OSError as error:
            return [self._reject("", f"This folder cannot be read ({error.strerror}).")]

    def _find_misplaced(self, found: list[Path]) -> Iterator[ParsedAnswer]:
        names = {path.name for path in found}
        for path in found:
            known = path.name in (REQUEST, ANSWERS)
            if path.suffix.lower() in _MISPLACED and not known and path.is_file():
                place = f"the folder {MASKS}" if path.suffix.lower() == ".png" else f"a file {ANSWERS}"
                yield self._reject(path.name, f"This file is not read: answers go into {place}.")
        if REQUEST in names and ANSWERS not in names and self._has_labels():
            yield self._reject(
                REQUEST, f"Labels are not read from this file: save the filled-in table as {ANSWERS}."
            )

    def _has_labels(self) -> bool:
        path = self._folder / REQUEST
        try:
            check_file(path, self._root)
            return any(line.cells["label"].strip() for line in read_sheet(path, needed=("sample", "label")))
        except FealError:
            return False

    def _read_table(self) -> Iterator[ParsedAnswer]:
        path = self._folder / ANSWERS
        if not path.exists() and not path.is_symlink():
            return
        try:
            check_file(path, self._root)
            lines = read_sheet(path, needed=("sample", "label"), optional=("by",))
        except FealError as error:
            yield self._reject(ANSWERS, str(error))
            return
        for line in lines:
            parsed = self._parse_row(line)
            if parsed is not None:
                yield parsed

    def _parse_row(self, line: SheetRow) -> ParsedAnswer | None:
        written, label = line.cells["sample"], line.cells["label"].strip()
        sample = self._find_sample(written)
        if sample is not None and line.cells.get("by", "").strip():
            self._by[sample] = line.cells["by"].strip()
        if not label and not line.problem:
            return None
        if line.problem or sample is None:
            reason = line.problem or _describe_unrequested(written)
            return self._reject(f"{ANSWERS}, line {line.number}", reason, sample=written, sample_id=sample)
        try:
            number = parse_label(label, self._site.classes)
            if number is not None and self._site.task == "segmentation":
                raise FealError(f"A label is a mask in the folder {MASKS}: leave this empty, or write 'cannot'.")
        except FealError as error:
            return self._reject(f"{ANSWERS}, line {line.number}", str(error), sample=written, sample_id=sample)
        return ParsedAnswer(
            sample, Answer(sample=sample, label=number, by=line.cells.get("by", "").strip() or DEFAULT_AUTHOR)
        )

    def _read_masks(self, read: list[ParsedAnswer]) -> Iterator[ParsedAnswer]:
        try:
            files = list_entries(self._folder / MASKS, self._root)
            samples = self._read_request() if files else {}
        except FealError as error:
            yield self._reject(MASKS, str(error))
            return
        answered = {parsed.sample_id for parsed in read if parsed.sample_id is not None}
        for path in files:
            parsed = self._parse_mask(path, samples)
            if parsed.sample_id is not None and parsed.sample_id in answered:
                reason = f"{ANSWERS} or another mask of this round answers this sample too: keep one of them."
                parsed = self._reject(
                    f"{MASKS}/{path.name}", reason, sample=parsed.sample_id, sample_id=parsed.sample_id
                )
            if parsed.sample_id is not None:
                answered.add(parsed.sample_id)
            yield parsed

    def _read_request(self) -> dict[str, str]:
        path = self._folder / REQUEST
        if not path.is_file() or not is_inside(path, self._root):
            raise FealError(f"{REQUEST} is missing, which assigns masks to samples: restore it.")
        try:
            return read_requested_images(path)
        except FealError as error:
            raise FealError(f"{REQUEST} no longer assigns masks to samples: {error}") from None

    def _parse_mask(self, path: Path, samples: dict[str, str]) -> ParsedAnswer:
        where = f"{MASKS}/{path.name}"
        written = samples.get(path.name.lower())
        sample = None if written is None else self._find_sample(written)
        try:
            check_file(path, self._root)
            if written is None:
                raise FealError("No image of this round has this file name: name a mask like its image.")
            if sample is None:
                raise FealError(_describe_unrequested(written))
            _, height, width = self._site.shape
            mask = read_mask(path, shape=(height, width), classes=len(self._site.classes))
        except FealError as error:
            return self._reject(where, str(error), sample=written or "", sample_id=sample)
        return ParsedAnswer(sample, Answer(sample=sample, label=mask, by=self._by.get(sample, DEFAULT_AUTHOR)))

    def _find_sample(self, written: str) -> str | None:
        return next((sample for sample in (written, written.strip()) if sample in self._asked), None)

    def _reject(self, where: str, reason: str, *, sample: str = "", sample_id: str | None = None) -> ParsedAnswer:
        place = f"{self._folder.name}/{where}" if where else self._folder.name
        # A file name may hold bytes that are not text.
        place = place.encode(errors="backslashreplace").decode()
        return ParsedAnswer(sample_id, Rejection(where=place, sample=sample, reason=reason))


def _describe_unrequested(written: str) -> str:
    name = written.strip()
    return f"Sample '{name}' was never requested: check its name." if name else "The line names no sample."
