"""What people write as a label."""

from __future__ import annotations

import re
from collections.abc import Sequence

from feal.errors import FealError, unknown

CANNOT = ("cannot", "cannot be labelled", "cannot be labeled", "unlabelable", "unlabellable")

# Spreadsheets and pandas write whole numbers as 1.0 where a cell of the column is empty.
_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?")
_LONGEST = 60


def read_label(text: str, classes: Sequence[str]) -> int | None:
    """The class number that a label's text means, or None: the sample cannot be labelled.

    A name counts before a number, in case a class is called by one; case does not matter.

    Raises:
        FealError: it is no class, in words for whoever wrote it.

    >>> classes = ["nevus", "melanoma"]
    >>> [read_label(text, classes) for text in (" Melanoma ", "0", "1.0", "Cannot be labelled")]
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
    raise _no_class(text, classes, is_number=bool(number))


def _no_class(text: str, classes: Sequence[str], *, is_number: bool) -> FealError:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    numbers = f"a number from 0 to {len(classes) - 1}"
    if is_number:
        return FealError(f"There is no class {shown}: write {numbers}, or a class's name.")
    return FealError(f"{unknown('class', shown, classes)} Or write {numbers}, or 'cannot'.")
