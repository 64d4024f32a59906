"""Several sites at a time, on one machine or on a Ray cluster, by Flower's simulation runtime."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from feal.data import open_prepared
from feal.errors import FealError
from feal.federation.engines.contract import ENGINES, Engine, Lost, out_of_time
from feal.federation.engines.same_disk import answer, naming, problem
from feal.settings import Settings

if TYPE_CHECKING:
    from flwr.app import Message

    from feal.federation.engines.flower_runtime import Runtime

PAUSE = 0.02
RESTARTING = "The actor is restarting"
RESTARTS = 30  # Ray takes two seconds each time to say that an actor is not back yet
GRACE = 60.0
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would have actors step back behind every other process.
    "RAY_worker_niceness": "0",
    # Leave a GPU visible to actors that did not book one.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Nothing of Ray's on the terminal, not even that an actor died.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Flower must not call up a new Ray to end its actors when Ray has ended.
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
PRIVATE = {
    # Listen on the loopback interface only, as Ray does elsewhere than on Linux; for Ray's own processes.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # How long Ray's agents outlive a process that was killed.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
}


@dataclass(frozen=True, kw_only=True)
class Flight:
    """A message that is not answered yet."""

    site: str
    request: bytes
    timeout: float | None
    since: float
    restarts: int = 0

    def late(self, grace: float = 0.0) -> bool:
        """Whether it is out for longer than it may."""
        return self.timeout is not None and time.monotonic() - self.since >= self.timeout + grace


@ENGINES.register("flower-simulation", summary="several sites at a time, by Flower and Ray")
class FlowerSimulation(Engine):
    """Sends messages to a pool of actors, any of which answers for any site from that site's disk.

    An actor that takes longer than it may ends itself, and Ray makes it anew; so it does with one that died.
    """

    answer: ClassVar[Callable[..., bytes]] = staticmethod(answer)

    def __init__(self, *, data: Path, folder: Path, settings: Settings) -> None:
        self._data = data.absolute()
        self._folder = folder.absolute()
        self._names = open_prepared(data).named(settings.sites)
        self._settings = settings
        self._flying: dict[str, Flight] = {}
        self._runtime: Runtime | None = None
        self._variables = ENVIRONMENT if settings.simulation.address else {**ENVIRONMENT, **PRIVATE}
        with _environment(self._variables):
            _check_installed()

    def sites(self) -> list[str]:
        return list(self._names)

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        runtime = self._runtime = self._runtime or self._started()
        while self._flying:  # a delivery was given up half-way, and its sites are still at work
            self._landed(runtime)
        waiting = deque(sites)
        while waiting or self._flying:
            # One more than there are workers: Flower looks for new messages ten times a second only.
            while waiting and len(self._flying) <= runtime.workers:
                site = waiting.popleft()
                self._send(runtime, Flight(site=site, request=request, timeout=timeout, since=time.monotonic()))
            yield from self._landed(runtime)

    def explain(self, site: str, reason: str) -> str:
        return naming(site, problem(site, folder=self._folder) or reason)

    def close(self) -> None:
        self._flying.clear()
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def _started(self) -> Runtime:
        with _environment(self._variables):
            from feal.federation.engines.flower_client import Client
            from feal.federation.engines.flower_runtime import Runtime

            return Runtime(
                Client(answer=type(self).answer, data=self._data, folder=self._folder),
                nodes=len(self._names),
                workers=self._settings.simulation.workers,
                threads=self._settings.threads,
                address=self._settings.simulation.address,
            )

    def _send(self, runtime: Runtime, flight: Flight) -> None:
        from feal.federation.engines.flower_client import Question

        content = Question(site=flight.site, request=flight.request, timeout=flight.timeout or 0.0).packed()
        self._flying[runtime.push(self._names.index(flight.site), content)] = flight

    def _landed(self, runtime: Runtime) -> list[tuple[str, bytes | Lost]]:
        """What has come in a short while, told apart by the messages' numbers."""
        time.sleep(PAUSE)
        landed: list[tuple[str, bytes | Lost]] = []
        for number in list(self._flying)[runtime.workers :]:  # no worker has these yet
            self._flying[number] = replace(self._flying[number], since=time.monotonic())
        for number, reply in runtime.pull(self._flying):
            flight = self._flying.pop(number)
            if reply.has_error() and RESTARTING in str(reply.error.reason) and flight.restarts < RESTARTS:
                self._send(runtime, replace(flight, restarts=flight.restarts + 1))
            else:
                landed.append((flight.site, _result(flight, reply)))
        for number, flight in list(self._flying.items())[: runtime.workers]:
            if flight.late(GRACE):  # the actor should have ended itself: its machine may be gone
                del self._flying[number]
                landed.append((flight.site, out_of_time(flight.site, flight.timeout or 0.0)))
        return landed


def _result(flight: Flight, reply: Message) -> bytes | Lost:
    if reply.has_error():
        if flight.late():
            return out_of_time(flight.site, flight.timeout or 0.0)
        return Lost(reason=f"Site {flight.site}'s process ended before it answered: killed, or out of memory.")
    from feal.federation.engines.flower_client import unpacked

    return unpacked(reply.content)


def _check_installed() -> None:
    try:
        import flwr
        import ray

        del flwr, ray
    except ImportError as error:
        raise FealError(
            "The engine flower-simulation needs Flower: install it with `pip install 'feal[flower]'`."
        ) from error


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that Flower and Ray read when they are imported and hand on to their processes."""
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
