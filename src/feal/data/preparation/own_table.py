"""Pictures of one's own by a table: CSV with a line a picture."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from feal.data.preparation.contract import Finding
from feal.data.preparation.findings import named
from feal.data.preparation.own_layout import Layout, Own, stem
from feal.data.preparation.splitting import both_sides
from feal.data.samples import SPLITS
from feal.errors import FealError

_NEEDED, _OPTIONAL = ("site", "image"), ("label", "mask", "patient", "split")


def table_in(folder: Path) -> Path | None:
    """The one CSV in a folder that names sites and images; None if there is none.

    Raises:
        FealError: there are several.
    """
    tables = [path for path in sorted(folder.glob("*.csv")) if set(_NEEDED) <= set(_header(path))]
    if len(tables) > 1:
        raise FealError(f"{folder} holds {len(tables)} tables of pictures: name the one that is meant by --csv.")
    return tables[0] if tables else None


def from_table(path: Path, folder: Path) -> Layout:
    """Pictures by a CSV with the columns site and image, and label or mask, patient, split where they are known.

    Paths are below `folder`; a line without label and mask is unlabelled.

    Raises:
        FealError: it cannot be read, or lacks a column.
    """
    missing = [name for name in _NEEDED if name not in _header(path)]
    if missing:
        raise FealError(
            f"The table {path} has no column {' and '.join(missing)}: its first line names the columns."
        )
    good, findings = [], []
    for number, line in _lines(path):
        problem = _problem_of(line)
        if problem:
            findings.append(Finding(file=f"{path.name} line {number}", problem=problem))
        else:
            good.append(_by_line(line, folder))
    torn = _torn_patients(good)
    findings += [
        Finding(
            file=named(one.image, folder),
            problem=f"is of patient {one.patient}, who is on both sides of the split",
        )
        for one in good
        if (one.site, one.patient) in torn
    ]
    kept = [one for one in good if (one.site, one.patient) not in torn]
    return Layout(kept, findings, _at_several_sites(kept))


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


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    columns = _header(path)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=_delimiter(file.readline()))
        try:
            for number, cells in enumerate(reader, start=2):
                if any(cell.strip() for cell in cells):
                    yield number, dict(zip(columns, (cell.strip() for cell in cells), strict=False))
        except (csv.Error, UnicodeDecodeError) as error:
            raise FealError(f"The table {path} cannot be read ({error}): save it as CSV in UTF-8.") from None


def _problem_of(line: Mapping[str, str]) -> str | None:
    for column in _NEEDED:
        if not line.get(column):
            return f"names no {column}"
    if not Path(line["image"]).name:
        return f"names a folder as its image ({line['image']})"
    if not all(cell.isprintable() for cell in line.values()):
        return "has a character that cannot be printed"
    if line.get("split", "") not in ("", *SPLITS):
        return f"has the split '{line['split']}': it is train, test or left out"
    return None


def _by_line(line: Mapping[str, str], folder: Path) -> Own:
    known = {column: line.get(column) or None for column in _OPTIONAL}
    image = Path(line["image"])
    return Own(
        site=line["site"],
        id=(image.name if image.is_absolute() else image.with_name(stem(image)).as_posix()),
        image=folder / image,
        # A column with empty cells becomes one of fractions in many a program.
        label=known["label"] and re.sub(r"^(-?\d+)\.0+$", r"\1", known["label"]),
        mask=folder / known["mask"] if known["mask"] else None,
        patient=known["patient"],
        split="train" if known["split"] == "train" else "test" if known["split"] else None,
    )


def _at_several_sites(pictures: Sequence[Own]) -> list[str]:
    """A remark and no finding: hospitals that number their patients from 1 on share names, not people."""
    sites: dict[str, set[str]] = {}
    for one in pictures:
        if one.patient:
            sites.setdefault(one.patient, set()).add(one.site)
    several = sorted(patient for patient, found in sites.items() if len(found) > 1)
    if not several:
        return []
    listed = ", ".join(several[:5]) + (", ..." if len(several) > 5 else "")
    return [
        f"Patients of one name at more than one site: {len(several)} ({listed}); if they are the same people, "
        "one may train at one site and test at another."
    ]


def _torn_patients(pictures: Sequence[Own]) -> set[tuple[str, str | None]]:
    torn: set[tuple[str, str | None]] = set()
    for site in {one.site for one in pictures}:
        sided = [one for one in pictures if one.site == site and one.patient and one.split]
        both = both_sides([str(one.patient) for one in sided], [str(one.split) for one in sided])
        torn |= {(site, patient) for patient in both}
    return torn
