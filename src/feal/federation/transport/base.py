"""The transport contract: deliver requests and replies as bytes, without any learning logic."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from feal.errors import FealError
from feal.registry import Parameters, Registry
from feal.rundir.layout import SiteDirectory

RequestHandler = Callable[..., bytes]
"""A function with the signature of `feal.federation.site.site.handle_request`."""


@dataclass(frozen=True, kw_only=True)
class DeliveryFailure:
    """A missing reply, with the reason as a sentence that contains nothing private."""

    reason: str

    @classmethod
    def from_timeout(cls, site: str, timeout: float) -> DeliveryFailure:
        """Describe a site that did not answer in time."""
        return cls(reason=f"Site {site} did not answer within {timeout:g} s (round_timeout).")


Delivery = bytes | DeliveryFailure
"""A site's reply, or why there is none."""
Deliveries = Iterator[tuple[str, Delivery]]
"""The outcome of a request, by site, as it becomes known."""


class Transport(ABC):
    """Carry requests to the sites and replies back, as bytes."""

    class Params(Parameters):
        """No parameters."""

    data_here: ClassVar[bool] = True
    """Whether the data of the sites are on this machine."""
    has_timeout: ClassVar[bool] = True
    """Whether a site that takes too long can be stopped (`round_timeout`)."""

    @abstractmethod
    def __init__(
        self, params: Parameters, *, data: Path, folder: Path, sites: Sequence[str] | None, threads: int
    ) -> None:
        """Prepare to deliver messages.

        Args:
            params: the transport's own.
            data: the prepared data of all sites, where they are on this machine.
            folder: where sites on this machine keep their files.
            sites: those that take part; all if None.
            threads: of a site's computation.
        """

    @abstractmethod
    def sites(self) -> list[str]:
        """Return the names of the sites, sorted."""

    @abstractmethod
    def deliver(self, request: bytes, sites: Sequence[str], *, timeout: float | None) -> Deliveries:
        """Send one request to the named sites and yield each reply as it arrives.

        A site that takes longer than `timeout` seconds after it received the request counts as failed. `timeout`
        is None for a transport without `has_timeout`.
        """

    @abstractmethod
    def explain(self, site: str, reason: str) -> str:
        """Add what this machine knows about a site's failure to the reason that the site sent."""

    @abstractmethod
    def close(self) -> None:
        """Stop every process and connection that the transport started."""


TRANSPORTS: Registry[type[Transport]] = Registry("transport")


def read_problem(name: str, *, folder: Path) -> str:
    """Return the first line of the site's problem.txt, or an empty string if there is none."""
    try:
        return SiteDirectory(folder / name).problem.read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""


def prefix_site_name(name: str, sentence: str) -> str:
    """Put the name of the site before a sentence that does not contain it."""
    return sentence if name in sentence else f"Site {name}: {sentence}"


def check_installed(transport: str, *packages: str) -> None:
    """Raise a `FealError` if a transport's packages are missing; nothing is imported."""
    if any(find_spec(name) is None for name in packages):
        raise FealError(f"transport={transport} needs Flower: install it with `pip install 'feal[flower]'`.")


@contextmanager
def set_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables in this block, for libraries that read them at import or when a client is made."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
