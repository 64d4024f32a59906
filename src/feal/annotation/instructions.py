"""The page that tells a radiologist how to answer a request."""

from __future__ import annotations

from feal.data import PreparedSite
from feal.data.pictures import palette

_LABELS = """\
What to do
  1. Look at the pictures in the folder "pictures".
  2. Copy request.csv to answers.csv, here in this folder, and fill in its column "label":
     a class by its name or by its number.

The classes
{classes}

A picture that cannot be labelled: write  cannot  as its label.
Not sure yet: leave the label empty. You can save as often as you like; whatever is there is taken.
To correct a label: change it in answers.csv, at any time, also in a later round. The old one is kept on record.
"""

_MASKS = """\
What to do
  1. For each picture in the folder "pictures", draw a mask of the same size ({width} x {height} pixels).
  2. Save it as PNG in a folder "masks", here in this folder, under the picture's own file name.
{drafts}
The classes
{classes}
A pixel is of one class: use exactly these numbers (as grey values or palette entries) or exactly these colours,
no soft edges, nothing see-through.

A picture that cannot be labelled: copy request.csv to answers.csv and write  cannot  as its label, and save no
mask for it. Leave the other labels empty.
To correct a mask: save it anew, at any time, also in a later round. The old one is kept on record.
"""

_DRAFTED = """\
     The folder "drafts" holds what the model would draw: copy a draft to "masks" and correct it there.
     A draft that is right can be copied as it is; what is not in "masks" does not count.
"""

_END = """
Who answered: a column "by" in answers.csv with your name is noted with each label.
What could not be taken is listed in refused.csv, one folder up, with the reason.
"""


def instructions(site: PreparedSite, *, asked: int, folder: str, drafts: bool) -> str:
    """The text of a request's README."""
    number = int(folder.rpartition("-")[2])
    title = f"Site {site.name}, round {number}: {asked} picture{'s' if asked != 1 else ''} to be labelled\n\n"
    if site.task == "classification":
        return title + _LABELS.format(classes=_numbered(site)) + _END
    _, height, width = site.shape
    body = _MASKS.format(classes=_coloured(site), width=width, height=height, drafts=_DRAFTED if drafts else "")
    return title + body + _END


def _numbered(site: PreparedSite) -> str:
    return "\n".join(f"  {number:>3}  {name}" for number, name in enumerate(site.classes))


def _coloured(site: PreparedSite) -> str:
    colours = palette(len(site.classes))
    return "\n".join(
        f"  {number:>3}  #{red:02x}{green:02x}{blue:02x}  {name}"
        for number, (name, (red, green, blue)) in enumerate(zip(site.classes, colours, strict=True))
    )
