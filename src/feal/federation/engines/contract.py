"""An engine delivers messages; it holds no learning logic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from feal.registry import Registry
from feal.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Lost:
    """No reply came from a site, and why, in a sentence that may be shown anywhere."""

    reason: str


class Engine(Protocol):
    """What carries requests to sites and replies back, as bytes."""

    data_here: ClassVar[bool] = True
    """Whether the sites' data lie on this machine."""

    def __init__(self, *, data: Path, folder: Path, settings: Settings) -> None: ...

    def sites(self) -> list[str]:
        """Names of the sites, sorted."""

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        """Send one request to the named sites and give each one's reply as it comes.

        A site that takes longer than `timeout` seconds from when it was given the request is lost.
        """

    def explain(self, site: str, reason: str) -> str:
        """What is known here of a site's failure, beyond the reason that crossed its border."""

    def close(self) -> None:
        """End whatever the engine started."""


ENGINES: Registry[type[Engine]] = Registry("engine")


def out_of_time(site: str, timeout: float) -> Lost:
    """A site that did not answer in time."""
    return Lost(reason=f"Site {site} did not answer within {timeout:g} s (round_timeout).")
