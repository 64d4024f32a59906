"""Read tables: those of a download, and a user's CSV with one line per image."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feal.data.prepare.base import Finding, SourceRecord, Split, list_first, make_finding
from feal.data.prepare.decode import strip_suffix
from feal.data.prepare.split import find_straddling
from feal.errors import FealError

_NEEDED = ("site", "image")
_REPAIR_OWN = "save it as CSV in UTF-8 with the names of the columns in its first line"
_SPLITS: Mapping[str, Split] = {"train": "train", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class ImageRecord(SourceRecord):
    """An image of a user; its class has no number before all of them are known."""

    class_name: str | None = None


class ImageListing(NamedTuple):
    """All images of a user, problems with their arrangement, and remarks."""

    images: Sequence[ImageRecord]
    findings: Sequence[Finding]
    remarks: Sequence[str]


def read_table(
    path: Path, *, columns: Sequence[str], repair: str = "download it again from its owners"
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the cells of each line that is not empty; a missing cell is an empty one.

    Columns are separated by commas, semicolons or tabs, their names are in lower case, and cells are stripped.

    Raises:
        FealError: it cannot be read as text, or lacks one of `columns`; `repair` says what to do.
    """
    with _open_table(path, repair=repair) as (header, rows):
        missing = [column for column in columns if column.lower() not in header]
        if missing:
            raise FealError(f"The table {path} has no column {' and '.join(missing)}: {repair}.")
        for number, cells in enumerate(rows, start=2):
            if any(cells):
                yield number, dict.fromkeys(header, "") | dict(zip(header, cells, strict=False))


@contextmanager
def _open_table(path: Path, *, repair: str) -> Iterator[tuple[list[str], Iterator[list[str]]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = max(",;\t", key=file.readline().count)
            file.seek(0)
            rows = ([cell.strip() for cell in row] for row in csv.reader(file, delimiter=delimiter))
            yield [name.lower() for name in next(rows, [])], rows
    except OSError as error:
        raise FealError(f"The table {path} cannot be read ({error.strerror}): check the path.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise FealError(f"The table {path} cannot be read ({error}): {repair}.") from None


def parse_whole(cell: str) -> int | None:
    """Parse a whole number, also if it was saved as a decimal fraction; None if it is none.

    >>> parse_whole("3"), parse_whole("3.0"), parse_whole("3.5"), parse_whole("")
    (3, 3, None, None)
    """
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def parse_index(cell: str, count: int) -> int | None:
    """Parse a whole number from 0 to `count` - 1; None if it is none."""
    number = parse_whole(cell)
    return number if number is not None and 0 <= number < count else None


def parse_split(cell: str) -> Split | None:
    """Parse the name of a split; None if it is none."""
    return _SPLITS.get(cell.lower())


def find_table(folder: Path) -> Path | None:
    """Find the CSV in a folder that has columns for site and image; None if there is none.

    Raises:
        FealError: there are several, or one cannot be read.
    """
    tables = []
    for path in sorted(folder.glob("*.csv")):
        with _open_table(path, repair=_REPAIR_OWN) as (header, _):
            tables += [path] if set(_NEEDED) <= set(header) else []
    if len(tables) > 1:
        raise FealError(f"{folder} holds {len(tables)} tables of images: choose one by --csv.")
    return tables[0] if tables else None


def list_table(path: Path, folder: Path) -> ImageListing:
    """List images by a CSV with the columns site and image, and optionally label, mask, patient and split.

    Paths are relative to `folder`; a line without label and mask is unlabelled.

    Raises:
        FealError: the table cannot be read, or lacks a column.
    """
    good, findings = [], []
    for number, line in read_table(path, columns=_NEEDED, repair=_REPAIR_OWN):
        problem = _find_problem(line)
        if problem:
            findings.append(Finding(file=f"{path.name} line {number}", problem=problem))
        else:
            good.append(_parse_line(line, folder))
    named = [((one.site, one.group), one.split) for one in good if one.group and one.split]
    torn = set(find_straddling(*zip(*named, strict=True))) if named else set()
    kept = []
    for one in good:
        if (one.site, one.group) in torn:
            problem = f"is of patient {one.group}, who is in both splits"
            findings.append(make_finding(one.image, folder, problem))
        else:
            kept.append(one)
    return ImageListing(kept, findings, _remark_shared_patients(kept))


def _find_problem(line: Mapping[str, str]) -> str | None:
    for column in _NEEDED:
        if not line[column]:
            return f"names no {column}"
    if not Path(line["image"]).name:
        return f"names a folder instead of an image ({line['image']})"
    if not all(cell.isprintable() for cell in line.values()):
        return "has a character that cannot be printed"
    if line.get("split", "") not in ("", *_SPLITS):
        return f"has the split '{line['split']}': use train, test or leave it empty"
    return None


def _parse_line(line: Mapping[str, str], folder: Path) -> ImageRecord:
    image, mask, label = Path(line["image"]), line.get("mask"), line.get("label")
    return ImageRecord(
        site=line["site"],
        id=image.name if image.is_absolute() else image.with_name(strip_suffix(image)).as_posix(),
        image=folder / image,
        # Many programs write whole numbers as fractions in a column with empty cells.
        class_name=re.sub(r"^(-?\d+)\.0+$", r"\1", label) if label else None,
        mask=folder / mask if mask else None,
        group=line.get("patient") or None,
        split=parse_split(line.get("split", "")),
    )


def _remark_shared_patients(images: Sequence[ImageRecord]) -> list[str]:
    """Remark on patient names at several sites; no finding, since hospitals may both number patients from 1."""
    named = [one for one in images if one.group]
    several = find_straddling([one.group for one in named], [one.site for one in named])
    remark = (
        f"Patient names at more than one site: {len(several)} ({list_first(several)}); if they are the same "
        "patients, one may be in the training split of one site and in the test split of another."
    )
    return [remark] if several else []
