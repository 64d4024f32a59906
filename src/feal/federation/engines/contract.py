"""An engine delivers messages; it holds no learning logic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from feal.registry import Registry


class Engine(Protocol):
    """What carries requests to sites and replies back, as bytes."""

    def __init__(self, *, data: Path, folder: Path, fresh: bool) -> None: ...

    def sites(self) -> list[str]:
        """Names of the sites, sorted."""

    def deliver(self, request: bytes, sites: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Send one request to the named sites and give each one's reply as it comes."""

    def explain(self, site: str, reason: str) -> str:
        """What is known here of a site's failure, beyond the reason in its reply."""

    def close(self) -> None:
        """End whatever the engine started."""


ENGINES: Registry[type[Engine]] = Registry("engine")
