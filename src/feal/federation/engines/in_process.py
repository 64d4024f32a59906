"""All sites in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from feal.data import PreparedSet, open_prepared
from feal.federation.engines.contract import ENGINES, Engine
from feal.federation.site import Site


@ENGINES.register("in-process", summary="all sites in this process, one after the other")
class InProcess(Engine):
    """Calls each site directly; with `fresh`, every message meets a site rebuilt from its disk."""

    def __init__(self, *, data: Path, folder: Path, fresh: bool) -> None:
        self._root = data
        self._data = open_prepared(data)
        self._folder = folder
        self._fresh = fresh
        self._running: dict[str, Site] = {}
        self._problems: dict[str, str] = {}

    def sites(self) -> list[str]:
        return list(self._data.sites)

    def deliver(self, request: bytes, sites: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        for name in sites:
            site = self._site(name)
            reply = site.handle(request)
            self._problems[name] = site.problem
            yield name, reply

    def explain(self, site: str, reason: str) -> str:
        problem = self._problems.get(site) or reason
        return problem if site in problem else f"Site {site}: {problem}"

    def close(self) -> None:
        for site in self._running.values():
            site.close()
        self._running.clear()

    def _site(self, name: str) -> Site:
        if self._fresh and name in self._running:
            self._running.pop(name).close()
        if name not in self._running:
            data: PreparedSet = open_prepared(self._root) if self._fresh else self._data
            self._running[name] = Site(name, folder=self._folder / name, data=data)
        return self._running[name]
