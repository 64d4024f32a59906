"""Run several sites at a time, on one machine or a Ray cluster, with Flower's simulation runtime."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from feal.data import open_prepared
from feal.federation.site.site import handle_request
from feal.federation.transport.base import (
    TRANSPORTS,
    Deliveries,
    Delivery,
    DeliveryFailure,
    RequestHandler,
    Transport,
    check_installed,
    prefix_site_name,
    read_problem,
    set_environment,
)

if TYPE_CHECKING:
    from flwr.app import Message

    from feal.federation.transport.flower_runtime import SimulationRuntime

POLL_SECONDS = 0.02
RESTARTING = "The actor is restarting"
MAX_RESTARTS = 30  # Ray takes two seconds each time to report that an actor is not back yet
LOST_ACTOR_SECONDS = 60.0
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would give its actors a lower priority than every other process.
    "RAY_worker_niceness": "0",
    # Keep the GPU visible to actors that did not reserve one.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Print nothing on the terminal, not even that an actor died.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    # Prevent Flower from starting a new Ray to end its actors after Ray has ended.
    "RAY_ENABLE_AUTO_CONNECT": "0",
}
PRIVATE_ENVIRONMENT = {
    # Ray's processes listen on the loopback interface only, as they do on other systems than Linux.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # How long Ray's agents outlive a killed process.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "3",
}


@dataclass(frozen=True, kw_only=True)
class PendingRequest:
    """A request that a site has not answered yet."""

    site: str
    request: bytes
    timeout: float | None
    since: float
    restarts: int = 0

    def is_late(self, margin: float = 0.0) -> bool:
        """Return whether the time for the answer, plus a margin, is over."""
        return self.timeout is not None and time.monotonic() - self.since >= self.timeout + margin


@TRANSPORTS.register("flower-simulation", summary="several sites at a time, by Flower and Ray")
class FlowerSimulation(Transport):
    """Send requests to a pool of actors, any of which can answer for any site from that site's directory.

    An actor that exceeds the timeout exits. Ray restarts it, as it does an actor that died.
    """

    handler: ClassVar[RequestHandler] = staticmethod(handle_request)

    class Params(Transport.Params):
        """The number of workers, and the Ray cluster."""

        workers: int | None = Field(
            None,
            ge=1,
            description="number of sites that run at the same time; by default as many as there are cores",
        )
        address: str | None = Field(
            None,
            description="a Ray cluster, such as auto or HOST:PORT; by default a private Ray on this machine",
        )

    def __init__(
        self, params: Params, *, data: Path, folder: Path, sites: Sequence[str] | None, threads: int
    ) -> None:
        self._data = data.absolute()
        self._folder = folder.absolute()
        self._names = open_prepared(data).select_sites(sites)
        self._params = params
        self._threads = threads
        self._pending: dict[str, PendingRequest] = {}
        self._runtime: SimulationRuntime | None = None
        self._variables = ENVIRONMENT if params.address else {**ENVIRONMENT, **PRIVATE_ENVIRONMENT}
        check_installed("flower-simulation", "flwr", "ray")

    def sites(self) -> list[str]:
        return list(self._names)

    def deliver(self, request: bytes, sites: Sequence[str], *, timeout: float | None) -> Deliveries:
        runtime = self._runtime = self._runtime or self._start_runtime()
        while self._pending:  # the previous delivery was abandoned while sites were still working
            self._collect_replies(runtime)
        waiting = deque(sites)
        while waiting or self._pending:
            # One more than there are workers: Flower checks for new messages only ten times a second.
            while waiting and len(self._pending) <= runtime.workers:
                site = waiting.popleft()
                self._send(
                    runtime, PendingRequest(site=site, request=request, timeout=timeout, since=time.monotonic())
                )
            yield from self._collect_replies(runtime)

    def explain(self, site: str, reason: str) -> str:
        return prefix_site_name(site, read_problem(site, folder=self._folder) or reason)

    def close(self) -> None:
        self._pending.clear()
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def _start_runtime(self) -> SimulationRuntime:
        with set_environment(self._variables):
            from feal.federation.transport.flower_runtime import SimulationClient, SimulationRuntime

            return SimulationRuntime(
                SimulationClient(handler=type(self).handler, data=self._data, folder=self._folder),
                nodes=len(self._names),
                workers=self._params.workers,
                threads=self._threads,
                address=self._params.address,
            )

    def _send(self, runtime: SimulationRuntime, pending: PendingRequest) -> None:
        from feal.federation.transport.flower_messages import Envelope

        envelope = Envelope(site=pending.site, request=pending.request, timeout=pending.timeout or 0.0)
        self._pending[runtime.push(self._names.index(pending.site), envelope.pack())] = pending

    def _collect_replies(self, runtime: SimulationRuntime) -> list[tuple[str, Delivery]]:
        """Wait a moment and return the replies that have arrived, matched by message number."""
        time.sleep(POLL_SECONDS)
        replies: list[tuple[str, Delivery]] = []
        for number in list(self._pending)[runtime.workers :]:  # no worker has started these
            self._pending[number] = replace(self._pending[number], since=time.monotonic())
        for number, reply in runtime.pull(self._pending):
            pending = self._pending.pop(number)
            if reply.has_error() and RESTARTING in str(reply.error.reason) and pending.restarts < MAX_RESTARTS:
                self._send(runtime, replace(pending, restarts=pending.restarts + 1))
            else:
                replies.append((pending.site, _unpack_result(pending, reply)))
        for number, pending in list(self._pending.items())[: runtime.workers]:
            if pending.is_late(LOST_ACTOR_SECONDS):  # the actor should have exited: its machine may be lost
                del self._pending[number]
                replies.append((pending.site, DeliveryFailure.from_timeout(pending.site, pending.timeout or 0.0)))
        return replies


def _unpack_result(pending: PendingRequest, reply: Message) -> Delivery:
    if reply.has_error():
        if pending.is_late():
            return DeliveryFailure.from_timeout(pending.site, pending.timeout or 0.0)
        return DeliveryFailure(
            reason=f"Site {pending.site}'s process ended before it answered: killed, or out of memory."
        )
    from feal.federation.transport.flower_messages import unpack_reply

    return unpack_reply(reply.content)
