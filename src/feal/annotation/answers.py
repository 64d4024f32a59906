"""Read one round's answers: labels from answers.csv, masks from masks/; tables from spreadsheets or editors."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.annotation.base import Answer, Entry, Rejection
from feal.annotation.request import ANSWERS, MASKS, REQUEST, is_inside
from feal.data import PreparedSite
from feal.data.images import read_mask
from feal.errors import FealError, unknown_name_error

_CANNOT = ("cannot", "cannot be labelled", "cannot be labeled", "unlabelable", "unlabellable")

# Spreadsheets and pandas write whole numbers as 1.0 where a cell of the column is empty.
_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?")

_DEFAULT_AUTHOR = "folder"
"""The author of an answer that names none."""

_MISPLACED = (".csv", ".tsv", ".xls", ".xlsx", ".ods", ".png")
_UNFINISHED = (".part", ".tmp", "~")
_DESKTOP_FILES = ("thumbs.db", "desktop.ini")
_DELIMITERS = ",;\t"
_LARGEST = 64 * 2**20


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
    if text.casefold() in _CANNOT:
        return None
    number = _NUMBER.fullmatch(text)
    if number and len(number[1]) < 9 and int(number[1]) < len(classes):
        return int(number[1])
    shown, numbers = _shorten(text, 60), f"a number from 0 to {len(classes) - 1}"
    if number:
        raise FealError(f"There is no class {shown}: write {numbers}, or a class's name.")
    raise FealError(f"{unknown_name_error('class', shown, classes)} Or write {numbers}, or 'cannot'.")


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

    def read(self) -> list[Entry]:
        """Read all answers in their order."""
        try:
            read = [*self._find_misplaced(list_entries(self._folder, self._root)), *self._read_table()]
            return read if self._site.task == "classification" else [*read, *self._read_masks(read)]
        except FealError as error:
            return [self._reject("", str(error))]
        except OSError as error:
            return [self._reject("", f"This folder cannot be read ({error.strerror}).")]

    def _find_misplaced(self, found: list[Path]) -> Iterator[Rejection]:
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
        try:
            lines = self._read_sheet(REQUEST, needed=("sample", "label"))
            return any(line.cells["label"].strip() for line in lines)
        except FealError:
            return False

    def _read_sheet(self, name: str, *, needed: Sequence[str], optional: Sequence[str] = ()) -> list[SheetRow]:
        _check_file(self._folder / name, self._root)
        return read_sheet(self._folder / name, needed=needed, optional=optional)

    def _read_table(self) -> Iterator[Entry]:
        path = self._folder / ANSWERS
        if not path.exists() and not path.is_symlink():
            return
        try:
            lines = self._read_sheet(ANSWERS, needed=("sample", "label"), optional=("by",))
        except FealError as error:
            yield self._reject(ANSWERS, str(error))
            return
        authors = ((self._find_sample(line.cells["sample"]), line.cells.get("by", "").strip()) for line in lines)
        self._by = {sample: by for sample, by in authors if sample is not None and by}
        yield from (self._parse_row(line) for line in lines if line.problem or line.cells["label"].strip())

    def _parse_row(self, line: SheetRow) -> Entry:
        written = line.cells["sample"]
        sample = self._find_sample(written)
        try:
            if line.problem or sample is None:
                raise FealError(line.problem or _describe_unrequested(written))
            number = parse_label(line.cells["label"], self._site.classes)
            if number is not None and self._site.task == "segmentation":
                raise FealError(f"A label is a mask in the folder {MASKS}: leave this empty, or write 'cannot'.")
        except FealError as error:
            return self._reject(f"{ANSWERS}, line {line.number}", str(error), sample=sample, written=written)
        by = line.cells.get("by", "").strip() or _DEFAULT_AUTHOR
        return Answer(sample=sample, label=number, by=by)

    def _read_masks(self, read: list[Entry]) -> Iterator[Entry]:
        try:
            files = list_entries(self._folder / MASKS, self._root)
            samples = self._read_request() if files else {}
        except FealError as error:
            yield self._reject(MASKS, str(error))
            return
        answered = {entry.sample for entry in read}
        for path in files:
            parsed = self._parse_mask(path, samples)
            sample = parsed.sample
            if sample is not None and sample in answered:
                reason = f"{ANSWERS} or another mask of this round answers this sample too: keep one of them."
                parsed = self._reject(f"{MASKS}/{path.name}", reason, sample=sample, written=sample)
            answered.add(sample)
            yield parsed

    def _read_request(self) -> dict[str, str]:
        path = self._folder / REQUEST
        if not path.is_file() or not is_inside(path, self._root):
            raise FealError(f"{REQUEST} is missing, which assigns masks to samples: restore it.")
        try:
            return read_requested_images(path)
        except FealError as error:
            raise FealError(f"{REQUEST} no longer assigns masks to samples: {error}") from None

    def _parse_mask(self, path: Path, samples: Mapping[str, str]) -> Entry:
        written = samples.get(path.name.lower())
        sample = None if written is None else self._find_sample(written)
        try:
            _check_file(path, self._root)
            if written is None:
                raise FealError("No image of this round has this file name: name a mask like its image.")
            if sample is None:
                raise FealError(_describe_unrequested(written))
            _, height, width = self._site.shape
            mask = read_mask(path, shape=(height, width), classes=len(self._site.classes))
        except FealError as error:
            return self._reject(f"{MASKS}/{path.name}", str(error), sample=sample, written=written or "")
        return Answer(sample=sample, label=mask, by=self._by.get(sample, _DEFAULT_AUTHOR))

    def _find_sample(self, written: str) -> str | None:
        return next((sample for sample in (written, written.strip()) if sample in self._asked), None)

    def _reject(self, where: str, reason: str, *, sample: str | None = None, written: str = "") -> Rejection:
        place = f"{self._folder.name}/{where}" if where else self._folder.name
        # A file name may hold bytes that are not text.
        place = place.encode(errors="backslashreplace").decode()
        return Rejection(where=place, reason=reason, sample=sample, written=written)


def _describe_unrequested(written: str) -> str:
    name = written.strip()
    return f"Sample '{name}' was never requested: check its name." if name else "The line names no sample."


def list_entries(folder: Path, root: Path) -> list[Path]:
    """List the files of a folder, sorted; hidden ones, incomplete ones and those of file browsers are left out.

    Raises:
        FealError: it is not a folder, leads out of `root`, or cannot be read; addressed to the annotator.
    """
    if not folder.exists() and not folder.is_symlink():
        return []
    if not is_inside(folder, root):
        raise FealError("This is a link out of the annotation folder: replace it by a folder.")
    try:
        return sorted(path for path in folder.iterdir() if not _is_ignored(path.name))
    except NotADirectoryError:
        raise FealError("This must be a folder: move the file away.") from None
    except OSError as error:
        raise FealError(f"This folder cannot be read ({error.strerror}).") from None


def _is_ignored(name: str) -> bool:
    """Return whether a file is hidden, incomplete, or created by a file browser.

    >>> [_is_ignored(name) for name in (".x.png", "x.png.part", "~$answers.csv", "answers.csv")]
    [True, True, True, False]
    """
    return name.startswith((".", "~$")) or name.endswith(_UNFINISHED) or name.lower() in _DESKTOP_FILES


def _check_file(path: Path, root: Path) -> None:
    if not path.is_file():
        raise FealError("This is not a file: replace it by one, or remove it.")
    if not is_inside(path, root):
        raise FealError("This is a link out of the annotation folder: replace it by the file itself.")


def read_requested_images(path: Path) -> dict[str, str]:
    """Read the sample of each image of a `request.csv`, by the image's file name in lower case.

    Raises:
        FealError: the file cannot be read any more; addressed to the annotator.
    """
    lines = read_sheet(path, needed=("sample", "image"))
    return {line.cells["image"].strip().rpartition("/")[2].lower(): line.cells["sample"] for line in lines}


@dataclass(frozen=True)
class SheetRow:
    """A row of a table that is not blank, with its cells by column; missing cells are empty."""

    number: int
    cells: Mapping[str, str]
    problem: str = ""
    """Why its cells cannot be used."""


def read_sheet(path: Path, *, needed: Sequence[str], optional: Sequence[str] = ()) -> list[SheetRow]:
    """Read the rows of a table: UTF-8, UTF-16 or Latin-1; comma, semicolon or tab; any line endings.

    Column names are case-insensitive, other columns are ignored.

    Raises:
        FealError: the file as a whole cannot be read; addressed to its author.
    """
    text = _read_text(path)
    delimiter = max(_DELIMITERS, key=lambda sign: _count_columns(text, sign, needed))
    records = list(_read_records(text, delimiter))
    if not records:
        raise FealError(f"This file is empty: it needs the columns {' and '.join(needed)}.")
    header = _normalise_header(records[0][1])
    for name in (*needed, *optional):
        if header.count(name) > 1:
            raise FealError(f"The column '{name}' occurs twice: keep one of them.")
    for name in needed:
        if name not in header:
            raise FealError(f"There is no column '{name}' (found: {_shorten(', '.join(header), 80)}): add it.")
    places = {name: header.index(name) for name in (*needed, *optional) if name in header}
    too_long = f"The line has more cells than the {len(header)} columns: quote a cell that contains a separator."
    rows = []
    for number, record in records[1:]:
        cells = {name: record[place] if place < len(record) else "" for name, place in places.items()}
        has_more = any(cell.strip() for cell in record[len(header) :])
        rows.append(SheetRow(number, cells, too_long if has_more else ""))
    return rows


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise FealError(f"This file cannot be read ({error.strerror}).") from None
    if len(data) > _LARGEST:
        raise FealError("This file is too large for a table of labels.")
    try:
        text = _decode(data)
    except UnicodeDecodeError:
        raise FealError("This file is truncated or not text: save it again as CSV (UTF-8).") from None
    if "\0" in text:
        raise FealError("This file is not text (it holds NUL bytes): save it as CSV (UTF-8).")
    return text


def _decode(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _count_columns(text: str, delimiter: str, needed: Sequence[str]) -> int:
    try:
        _, header = next(_read_records(text, delimiter), (1, []))
    except FealError:
        return 0  # quotes that are invalid with this delimiter may be valid with another
    return len(set(needed) & set(_normalise_header(header)))


def _normalise_header(record: Sequence[str]) -> list[str]:
    return [cell.strip().casefold() for cell in record]


def _read_records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield records that are not blank, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        for record in reader:
            if any(cell.strip() for cell in record):
                yield number, record
            number = reader.line_num + 1
    except csv.Error as error:
        # A broken quote changes the meaning of every later line, so none of them can be used.
        raise FealError(
            f"From line {number} on this file cannot be read ({error}): correct the quotes, or save it completely."
        ) from None


def _shorten(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
