"""Run all sites in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from feal.data import open_prepared
from feal.federation.site.site import Site
from feal.federation.transport.base import (
    TRANSPORTS,
    Deliveries,
    Delivery,
    DeliveryFailure,
    Transport,
    prefix_site_name,
    read_problem,
)
from feal.registry import Parameters


@TRANSPORTS.register("in-process", summary="all sites in this process, one after the other")
class InProcessTransport(Transport):
    """Call each site directly; a site stays open from one message to the next."""

    has_timeout: ClassVar[bool] = False

    def __init__(
        self, params: Parameters, *, data: Path, folder: Path, sites: Sequence[str] | None, threads: int
    ) -> None:
        del params, threads
        self._data = open_prepared(data)
        self._names = self._data.select_sites(sites)
        self._folder = folder
        self._open_sites: dict[str, Site] = {}

    def sites(self) -> list[str]:
        return list(self._names)

    def deliver(self, request: bytes, sites: Sequence[str], *, timeout: float | None) -> Deliveries:
        for name in sites:
            yield name, self._request_reply(name, request)

    def explain(self, site: str, reason: str) -> str:
        # An open site knows its problem even if its disk was too full to write problem.txt.
        opened = self._open_sites.get(site)
        problem = opened.problem if opened is not None else read_problem(site, folder=self._folder)
        return prefix_site_name(site, problem or reason)

    def close(self) -> None:
        for site in self._open_sites.values():
            site.close()
        self._open_sites.clear()

    def _request_reply(self, name: str, request: bytes) -> Delivery:
        try:
            return self._handle(name, request)
        except Exception as error:
            kind = type(error).__name__
            return DeliveryFailure(reason=f"Site {name} failed with {kind} before it could answer.")

    def _handle(self, name: str, request: bytes) -> bytes:
        if name not in self._open_sites:
            self._open_sites[name] = Site(name, folder=self._folder / name, data=self._data)
        return self._open_sites[name].handle(request)
