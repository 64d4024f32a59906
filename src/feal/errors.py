"""Errors that the user can fix."""

import difflib
from collections.abc import Iterable


class FealError(Exception):
    """An error that the user can fix.

    The message is one sentence: what is wrong, where, and what to do. The command line prints it without a
    traceback and exits with code 2.
    """


class ShareableError(FealError):
    """An error whose message reveals nothing about a site's data, so it may be sent to the coordinator."""


def nearest_spelling(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one, if there is any.

    >>> nearest_spelling("faal", ["feal", "random"])
    'feal'
    """
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> FealError:
    """Return the error for an unknown name, with the nearest known spelling.

    >>> str(unknown_name_error("strategy", "faal", ["feal", "random"]))
    "There is no strategy 'faal': did you mean 'feal'? Available: feal, random."
    """
    names = sorted(known)
    near = nearest_spelling(name, names)
    hint = f": did you mean '{near}'?" if near else "."
    listed = ", ".join(names) if names else "none"
    return FealError(f"There is no {kind} '{name}'{hint} Available: {listed}.")
