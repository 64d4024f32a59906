"""All sites in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from feal.data import open_prepared
from feal.federation.engines.contract import ENGINES, Engine, Lost, out_of_time
from feal.federation.engines.deadline import OutOfTime, deadline
from feal.federation.engines.same_disk import answer, naming, problem
from feal.federation.site import Site
from feal.settings import Settings


@ENGINES.register("in-process", summary="all sites in this process, one after the other")
class InProcess(Engine):
    """Calls each site directly; with `fresh`, every message meets a site rebuilt from its disk."""

    answer: ClassVar[Callable[..., bytes]] = staticmethod(answer)

    def __init__(self, *, data: Path, folder: Path, settings: Settings) -> None:
        self._root = data
        self._data = open_prepared(data)
        self._sites = self._data.named(settings.sites)
        self._folder = folder
        self._fresh = settings.fresh
        self._running: dict[str, Site] = {}

    def sites(self) -> list[str]:
        return list(self._sites)

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        for name in sites:
            yield name, self._asked(name, request, timeout)

    def explain(self, site: str, reason: str) -> str:
        # A site that is at hand knows more than its disk, which may be full.
        known = self._running[site].problem if site in self._running else problem(site, folder=self._folder)
        return naming(site, known or reason)

    def close(self) -> None:
        for site in self._running.values():
            site.close()
        self._running.clear()

    def _asked(self, name: str, request: bytes, timeout: float | None) -> bytes | Lost:
        try:
            with deadline(timeout):
                if self._fresh:
                    return type(self).answer(name, request, data=self._root, folder=self._folder)
                return self._site(name).handle(request)
        except OutOfTime:
            # It was cut off anywhere: only what is on its disk can be trusted.
            if name in self._running:
                self._running.pop(name).close()
            return out_of_time(name, timeout or 0.0)
        except Exception as error:
            return Lost(reason=f"Site {name} failed with {type(error).__name__} before it could answer.")

    def _site(self, name: str) -> Site:
        if name not in self._running:
            self._running[name] = Site(name, folder=self._folder / name, data=self._data)
        return self._running[name]
