"""List a user's images by a CSV table with one line per image."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from feal.data.prepare.base import Finding, relative_name
from feal.data.prepare.folder_layout import ImageListing, ImageRecord, strip_suffix
from feal.data.prepare.split import find_straddling
from feal.data.samples import SPLITS
from feal.errors import FealError

_NEEDED, _OPTIONAL = ("site", "image"), ("label", "mask", "patient", "split")


def find_table(folder: Path) -> Path | None:
    """Find the CSV in a folder that has columns for site and image; None if there is none.

    Raises:
        FealError: there are several.
    """
    tables = [path for path in sorted(folder.glob("*.csv")) if set(_NEEDED) <= set(_header(path))]
    if len(tables) > 1:
        raise FealError(f"{folder} holds {len(tables)} tables of images: choose one by --csv.")
    return tables[0] if tables else None


def list_table(path: Path, folder: Path) -> ImageListing:
    """List images by a CSV with the columns site and image, and optionally label, mask, patient and split.

    Paths are relative to `folder`; a line without label and mask is unlabelled.

    Raises:
        FealError: the table cannot be read, or lacks a column.
    """
    missing = [name for name in _NEEDED if name not in _header(path)]
    if missing:
        raise FealError(
            f"The table {path} has no column {' and '.join(missing)}: name the columns in its first line."
        )
    good, findings = [], []
    for number, line in _read_lines(path):
        problem = _find_problem(line)
        if problem:
            findings.append(Finding(file=f"{path.name} line {number}", problem=problem))
        else:
            good.append(_parse_line(line, folder))
    torn = _find_torn_patients(good)
    findings += [
        Finding(
            file=relative_name(one.image, folder),
            problem=f"is of patient {one.patient}, who is in both splits",
        )
        for one in good
        if (one.site, one.patient) in torn
    ]
    kept = [one for one in good if (one.site, one.patient) not in torn]
    return ImageListing(kept, findings, _remark_shared_patients(kept))


def _header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline()
        names = next(csv.reader([line], delimiter=_delimiter(line)), [])
    except OSError as error:
        raise FealError(f"The table {path} cannot be read ({error.strerror}): check the path.") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise FealError(f"The table {path} cannot be read ({error}): save it as CSV in UTF-8.") from None
    return [name.strip().lower() for name in names]


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _read_lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    columns = _header(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=_delimiter(file.readline()))
        try:
            for number, cells in enumerate(reader, start=2):
                if any(cell.strip() for cell in cells):
                    yield number, dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        except (csv.Error, UnicodeDecodeError) as error:
            raise FealError(f"The table {path} cannot be read ({error}): save it as CSV in UTF-8.") from None


def _find_problem(line: Mapping[str, str]) -> str | None:
    for column in _NEEDED:
        if not line.get(column):
            return f"names no {column}"
    if not Path(line["image"]).name:
        return f"names a folder instead of an image ({line['image']})"
    if not all(cell.isprintable() for cell in line.values()):
        return "has a character that cannot be printed"
    if line.get("split", "") not in ("", *SPLITS):
        return f"has the split '{line['split']}': use train, test or leave it empty"
    return None


def _parse_line(line: Mapping[str, str], folder: Path) -> ImageRecord:
    known = {column: line.get(column) or None for column in _OPTIONAL}
    image = Path(line["image"])
    return ImageRecord(
        site=line["site"],
        id=(image.name if image.is_absolute() else image.with_name(strip_suffix(image)).as_posix()),
        image=folder / image,
        # Many programs write whole numbers as fractions in a column with empty cells.
        label=known["label"] and re.sub(r"^(-?\d+)\.0+$", r"\1", known["label"]),
        mask=folder / known["mask"] if known["mask"] else None,
        patient=known["patient"],
        split="train" if known["split"] == "train" else "test" if known["split"] else None,
    )


def _remark_shared_patients(images: Sequence[ImageRecord]) -> list[str]:
    """Remark on patient names at several sites; no finding, since hospitals may both number patients from 1."""
    sites: dict[str, set[str]] = {}
    for one in images:
        if one.patient:
            sites.setdefault(one.patient, set()).add(one.site)
    several = sorted(patient for patient, found in sites.items() if len(found) > 1)
    if not several:
        return []
    listed = ", ".join(several[:5]) + (", ..." if len(several) > 5 else "")
    return [
        f"Patient names at more than one site: {len(several)} ({listed}); if they are the same patients, "
        "one may be in the training split of one site and in the test split of another."
    ]


def _find_torn_patients(images: Sequence[ImageRecord]) -> set[tuple[str, str | None]]:
    torn: set[tuple[str, str | None]] = set()
    for site in {one.site for one in images}:
        sided = [one for one in images if one.site == site and one.patient and one.split]
        both = find_straddling([str(one.patient) for one in sided], [str(one.split) for one in sided])
        torn |= {(site, patient) for patient in both}
    return torn
