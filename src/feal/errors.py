"""The one exception that means: the user can mend this."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FealError(Exception):
    """A mistake or a circumstance the user can do something about.

    The message is one sentence that says what is wrong, where, and what to do; the command line prints it
    without a traceback and ends with exit code 2.
    """


class RefusalError(FealError):
    """One whose sentence says nothing of a site's data, so that it may leave the site."""


def unknown(kind: str, name: str, known: Iterable[str]) -> FealError:
    """The error for a name that does not exist, with the nearest spelling.

    >>> str(unknown("strategy", "faal", ["feal", "random"]))
    "There is no strategy 'faal': did you mean 'feal'? Known are: feal, random."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f": did you mean '{near[0]}'?" if near else "."
    listed = ", ".join(names) if names else "none"
    return FealError(f"There is no {kind} '{name}'{hint} Known are: {listed}.")
