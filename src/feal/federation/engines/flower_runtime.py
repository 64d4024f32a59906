"""Flower's simulation runtime in the background of this process, on a Ray that ends with it."""

from __future__ import annotations

import contextlib
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
from feal.federation.engines.flower_client import Client
from feal.processes import cores

YEAR = 365 * 24 * 3600.0
QUERY = "query"
SILENT = logging.CRITICAL + 1
STORE_PER_WORKER, SMALLEST_STORE = 40 * 2**20, 80 * 2**20  # what does not fit goes over the disk
START_SECONDS = 120.0
CONNECT_SECONDS = 10.0
END_SECONDS = 10.0  # Flower's threads look once a second whether they shall end
SOCKET_ROOM = 27  # what Ray's socket names leave of the 107 characters that one may have


class Runtime:
    """A simulation with a node for every site; its grid is used from the thread that made it.

    `workers` is how many messages are worth having on the way; `pull` gives every reply once and never waits.
    """

    def __init__(
        self, client: Client, *, nodes: int, workers: int | None, threads: int, address: str | None
    ) -> None:
        self._logger = logging.getLogger("flwr")
        self._level = self._logger.level
        self._stop = threading.Event()
        self._grids: Queue[Grid] = Queue()
        self._problem = ""
        app = ClientApp()
        app.query()(client)
        # A daemon, and so are the threads that Flower starts from it.
        self._thread = threading.Thread(
            target=self._simulate, args=(app, nodes, threads), name="flower", daemon=True
        )
        here = min(nodes, workers or max(1, cores() // threads))
        self._scratch = _start_ray(workers=here, threads=threads, address=address)
        try:
            there = max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
            self.workers = min(nodes, there, workers or there)
            self._logger.setLevel(SILENT)
            self._thread.start()
            self._grid, self._nodes = self._opened(nodes)
        except BaseException:
            self.close()
            raise

    def push(self, node: int, content: RecordDict) -> str:
        """Give a node a message; its number is what the reply will be known by."""
        message = Message(content, dst_node_id=self._nodes[node], message_type=QUERY, ttl=YEAR)
        [number] = self._grid.push_messages([message])
        return number

    def pull(self, numbers: Collection[str]) -> list[tuple[str, Message]]:
        """The replies that have come to these messages."""
        self._check()
        return [(reply.metadata.reply_to_message_id, reply) for reply in self._grid.pull_messages(numbers)]

    def close(self) -> None:
        """End Flower and Ray with all their processes, whatever these are at."""
        try:
            if ray.is_initialized():
                _kill_actors()
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join(END_SECONDS)
        finally:
            ray.shutdown()
            self._logger.setLevel(self._level)
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _simulate(self, app: ClientApp, nodes: int, threads: int) -> None:
        server = ServerApp()

        @server.main()
        def _lend_grid(grid: Grid, context: Context) -> None:
            del context
            self._grids.put(grid)
            self._stop.wait()

        # Ray makes an actor anew that has died; Flower's pool would keep the dead one.
        resources: Any = {"num_cpus": threads, "num_gpus": 0.0, "max_restarts": -1}
        try:
            run_simulation(server, app, nodes, backend_config={"client_resources": resources})
        except Exception as error:
            self._problem = f"{type(error.__cause__ or error).__name__}: {error.__cause__ or error}"

    def _opened(self, nodes: int) -> tuple[Grid, list[int]]:
        grid: Grid | None = None
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            self._check()
            with contextlib.suppress(Empty):
                grid = grid or self._grids.get(timeout=0.01)
            known = sorted(grid.get_node_ids()) if grid else []
            if grid and len(known) == nodes:
                return grid, known
            time.sleep(0.01)
        raise FealError(f"Flower's simulation did not start within {START_SECONDS:.0f} seconds: try again.")

    def _check(self) -> None:
        if not self._thread.is_alive():
            raise FealError(f"Flower's simulation ended by itself ({self._problem}): resume the run.")


def _start_ray(*, workers: int, threads: int, address: str | None) -> Path | None:
    """Start a Ray of our own in a folder that is returned, or join the one at `address`."""
    if ray.is_initialized():
        raise FealError("Ray is in use in this process already: end that first, or use engine=in-process.")
    # Without clusters Ray listens on the loopback interface only; it may have been imported for one before.
    ray_constants.ENABLE_RAY_CLUSTER = address is not None
    scratch = None if address else _scratch()
    options: dict[str, Any] = {"address": address}
    if scratch is not None:
        options = {
            "address": "local",
            "num_cpus": workers * threads,
            "object_store_memory": max(SMALLEST_STORE, workers * STORE_PER_WORKER),
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_temp_dir": str(scratch),
        }
    try:
        _check_reachable(address)
        with _signals_kept():
            ray.init(log_to_driver=False, logging_level=SILENT, **options)
    except BaseException as error:
        ray.shutdown()
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        where = f"There is no Ray cluster to use at {address}" if address else "Ray did not start"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FealError(f"{where} ({reason}): try again, or use engine=in-process.") from error
    return scratch


def _kill_actors() -> None:
    """Wake up the threads of Flower that wait for an actor: no end of Ray would, nor does Flower lend its pool."""
    handles = [thing for thing in gc.get_objects() if type(thing) in (ActorHandle, ClientActorHandle)]
    with contextlib.suppress(RaySystemError):  # Flower ends Ray when it fails, and the actors with it
        for handle in handles:
            ray.kill(handle)


def _check_reachable(address: str | None) -> None:
    """Ray would try for eleven minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _scratch() -> Path:
    usual = tempfile.gettempdir()
    short = usual if len(usual) <= SOCKET_ROOM else "/tmp"
    return Path(tempfile.mkdtemp(prefix="feal-", dir=short))


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; afterwards it is again whose it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
