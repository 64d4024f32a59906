"""Run Flower's simulation in a background thread and answer its messages, on a Ray that ends with this process."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import ray
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from ray._private import ray_constants
from ray.actor import ActorHandle
from ray.exceptions import RaySystemError
from ray.util.client.common import ClientActorHandle

from feal.errors import FealError
from feal.federation.transport.base import DeliveryFailure, RequestHandler
from feal.federation.transport.flower_messages import MESSAGE_TTL_SECONDS, MESSAGE_TYPE, Envelope, pack_reply
from feal.fileio import write_text
from feal.processes import count_cores
from feal.rundir.layout import SiteDirectory

SILENT = logging.CRITICAL + 1
STORE_BYTES_PER_WORKER, MIN_STORE_BYTES = 40 * 2**20, 80 * 2**20  # larger objects are spilled to disk
SIMULATION_START_SECONDS = 120.0
CONNECT_SECONDS = 10.0
JOIN_SECONDS = 10.0  # Flower's threads check once a second whether they should stop
MAX_TEMPORARY_PATH = 27  # a socket path has at most 107 characters, and Ray needs the rest


@dataclass(frozen=True, kw_only=True)
class SimulationClient:
    """Answer for the site that a message names; an actor serves any site and keeps no state."""

    handler: RequestHandler
    data: Path
    folder: Path

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        envelope = Envelope.unpack(message.content)
        with _exit_after(envelope.timeout):
            reply = self._answer(envelope.site, envelope.request)
        return Message(reply, reply_to=message)

    def _answer(self, name: str, request: bytes) -> RecordDict:
        try:
            return pack_reply(self.handler(name, request, data=self.data, folder=self.folder))
        except BaseException as error:  # Ray would end the actor for good on a SystemExit
            kind = type(error).__name__
            with contextlib.suppress(FealError):
                write_text(SiteDirectory(self.folder / name).problem, f"Site {name} failed with {kind}: {error}\n")
            reason = f"Site {name} failed with {kind}: see problem.txt in its directory."
            return pack_reply(DeliveryFailure(reason=reason))


class SimulationRuntime:
    """A simulation with one node per site; its grid is used only by the thread that created it.

    `workers` messages are processed at a time. `pull` returns each reply once and does not block.
    """

    def __init__(
        self, client: SimulationClient, *, nodes: int, workers: int | None, threads: int, address: str | None
    ) -> None:
        self._logger = logging.getLogger("flwr")
        self._level = self._logger.level
        self._stop = threading.Event()
        self._grids: Queue[Grid] = Queue()
        self._problem = ""
        app = ClientApp()
        app.query()(client)
        # The threads that Flower starts from a daemon thread are daemons too.
        self._thread = threading.Thread(
            target=self._simulate, args=(app, nodes, threads), name="flower", daemon=True
        )
        wanted = min(nodes, workers or max(1, count_cores() // threads))
        self._temporary = _start_ray(workers=wanted, threads=threads, address=address)
        try:
            available = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
            self.workers = min(nodes, available, workers or available)
            self._logger.setLevel(SILENT)
            self._thread.start()
            self._grid, self._nodes = self._open_grid(nodes)
        except BaseException:
            self.close()
            raise

    def push(self, node: int, content: RecordDict) -> str:
        """Send a message to a node and return its number, by which the reply is identified."""
        message = Message(
            content, dst_node_id=self._nodes[node], message_type=MESSAGE_TYPE, ttl=MESSAGE_TTL_SECONDS
        )
        [number] = self._grid.push_messages([message])
        return number

    def pull(self, numbers: Collection[str]) -> list[tuple[str, Message]]:
        """Return the replies that have arrived for these messages."""
        self._check_running()
        return [(reply.metadata.reply_to_message_id, reply) for reply in self._grid.pull_messages(numbers)]

    def close(self) -> None:
        """End Flower and Ray with all their processes, even busy ones."""
        try:
            if ray.is_initialized():
                _kill_actors()
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join(JOIN_SECONDS)
        finally:
            ray.shutdown()
            self._logger.setLevel(self._level)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def _simulate(self, app: ClientApp, nodes: int, threads: int) -> None:
        server = ServerApp()

        @server.main()
        def _lend_grid(grid: Grid, context: Context) -> None:
            del context
            self._grids.put(grid)
            self._stop.wait()

        # Ray restarts an actor that died; Flower's pool would keep the dead one.
        resources: Any = {"num_cpus": threads, "num_gpus": 0.0, "max_restarts": -1}
        try:
            run_simulation(server, app, nodes, backend_config={"client_resources": resources})
        except Exception as error:
            self._problem = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"

    def _open_grid(self, nodes: int) -> tuple[Grid, list[int]]:
        grid: Grid | None = None
        end = time.monotonic() + SIMULATION_START_SECONDS
        while time.monotonic() < end:
            self._check_running()
            with contextlib.suppress(Empty):
                grid = grid or self._grids.get(timeout=0.01)
            known = sorted(grid.get_node_ids()) if grid else []
            if grid and len(known) == nodes:
                return grid, known
            time.sleep(0.01)
        raise FealError(
            f"Flower's simulation did not start within {SIMULATION_START_SECONDS:.0f} seconds: try again."
        )

    def _check_running(self) -> None:
        if not self._thread.is_alive():
            raise FealError(f"Flower's simulation ended unexpectedly ({self._problem}): resume the run.")


def _start_ray(*, workers: int, threads: int, address: str | None) -> Path | None:
    """Start a private Ray and return its temporary directory, or connect to the cluster at `address`."""
    if ray.is_initialized():
        raise FealError("Ray is already running in this process: shut it down first, or use transport=in-process.")
    # With clusters disabled Ray listens on the loopback interface only; an earlier import may have enabled them.
    ray_constants.ENABLE_RAY_CLUSTER = address is not None
    temporary = None if address else _make_temporary_directory()
    options: dict[str, Any] = {"address": address}
    if temporary is not None:
        options = {
            "address": "local",
            "num_cpus": workers * threads,
            "object_store_memory": max(MIN_STORE_BYTES, workers * STORE_BYTES_PER_WORKER),
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(temporary),
        }
    try:
        _check_reachable(address)
        with _preserve_signal_handlers():
            ray.init(log_to_driver=False, logging_level=SILENT, **options)
    except BaseException as error:
        ray.shutdown()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        where = f"No Ray cluster is available at {address}" if address else "Ray did not start"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FealError(f"{where} ({reason}): try again, or use transport=in-process.") from error
    return temporary


def _kill_actors() -> None:
    """Wake up Flower's threads that wait for an actor: shutting Ray down does not, and Flower hides its pool."""
    handles = [item for item in gc.get_objects() if type(item) in (ActorHandle, ClientActorHandle)]
    with contextlib.suppress(RaySystemError):  # when Flower fails it shuts Ray down, and the actors with it
        for handle in handles:
            ray.kill(handle)


def _check_reachable(address: str | None) -> None:
    """Fail at once if the cluster does not accept connections; Ray would retry for eleven minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _make_temporary_directory() -> Path:
    default = tempfile.gettempdir()
    parent = default if len(default) <= MAX_TEMPORARY_PATH else "/tmp"
    return Path(tempfile.mkdtemp(prefix="feal-", dir=parent))


@contextmanager
def _preserve_signal_handlers() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _exit_after(timeout: float) -> Iterator[None]:
    """Exit this process when the time is up, wherever it hangs; Ray then replaces it."""
    if not timeout:
        yield
        return
    faulthandler.dump_traceback_later(timeout, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
