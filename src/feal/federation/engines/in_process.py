"""All sites in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from feal.data import open_prepared
from feal.federation.engines.contract import ENGINES, Engine, Lost, out_of_time
from feal.federation.engines.deadline import OutOfTime, deadline
from feal.federation.site import Site
from feal.settings import Settings


@ENGINES.register("in-process", summary="all sites in this process, one after the other")
class InProcess(Engine):
    """Calls each site directly; with `fresh`, every message meets a site rebuilt from its disk."""

    def __init__(self, *, data: Path, folder: Path, settings: Settings) -> None:
        self._root = data
        self._data = open_prepared(data)
        self._folder = folder
        self._fresh = settings.fresh
        self._running: dict[str, Site] = {}
        self._problems: dict[str, str] = {}

    def sites(self) -> list[str]:
        return list(self._data.sites)

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        for name in sites:
            yield name, self._asked(name, request, timeout)

    def explain(self, site: str, reason: str) -> str:
        problem = self._problems.get(site) or reason
        return problem if site in problem else f"Site {site}: {problem}"

    def close(self) -> None:
        for name in list(self._running):
            self._dismiss(name)

    def _asked(self, name: str, request: bytes, timeout: float | None) -> bytes | Lost:
        if self._fresh:
            self._dismiss(name)
        if name not in self._running:
            data = open_prepared(self._root) if self._fresh else self._data
            self._running[name] = Site(name, folder=self._folder / name, data=data)
        site = self._running[name]
        self._problems[name] = ""
        try:
            with deadline(timeout):
                reply = site.handle(request)
        except OutOfTime:
            # It was cut off anywhere: only what is on its disk can be trusted.
            self._dismiss(name)
            return out_of_time(name, timeout or 0.0)
        self._problems[name] = site.problem
        return reply

    def _dismiss(self, name: str) -> None:
        site = self._running.pop(name, None)
        if site is not None:
            site.close()
