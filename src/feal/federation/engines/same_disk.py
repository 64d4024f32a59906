"""Sites whose folders this process can reach itself."""

from __future__ import annotations

from pathlib import Path

from feal.data import open_prepared
from feal.federation.site import Site


def answer(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """The reply of a site that is built from its disk for this one message."""
    site = Site(name, folder=folder / name, data=open_prepared(data))
    try:
        return site.handle(request)
    finally:
        site.close()


def problem(name: str, *, folder: Path) -> str:
    """What the site wrote of its last failure, if anything: the sentence, without what lies below it."""
    try:
        return (folder / name / "problem.txt").read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""


def naming(name: str, sentence: str) -> str:
    """The sentence, with the site's name in it."""
    return sentence if name in sentence else f"Site {name}: {sentence}"
