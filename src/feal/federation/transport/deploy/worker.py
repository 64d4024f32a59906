"""The worker process of a site, which imports torch once and may be killed at any moment, and its control.

`python -m feal.federation.transport.deploy.worker PARENT SOCKET NAME DATA STATE [PLUGIN ...]`: for every pair of
frames (run id, request) on the socket it sends one frame that begins with `REPLY` or `FAILURE`. A run may use only
built-in classes and the plugins named here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from feal.errors import FealError, ShareableError
from feal.federation import protocol as messages
from feal.federation.site.site import handle_request
from feal.federation.transport.base import Delivery, DeliveryFailure, RequestHandler
from feal.processes import exit_with_parent
from feal.rundir.journal import write_config
from feal.rundir.layout import RunDirectory
from feal.settings import Settings
from feal.tensors import read_metadata

WORKER_COMMAND = (sys.executable, "-m", "feal.federation.transport.deploy.worker")
WORKER_START_SECONDS = 300.0
REPLY, FAILURE, READY = b"R", b"L", b"Y"
_RUN = re.compile(r"[0-9a-f]{32}")


class WorkerProcess:
    """Start the process, send it one message at a time, and restart it after it died or timed out.

    Messages that arrive in the meantime are queued.
    """

    def __init__(
        self,
        name: str,
        *,
        data: Path,
        state: Path,
        log: IO[bytes],
        plugins: Sequence[str] = (),
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        self._name = name
        self._command = [*command, str(os.getpid())]
        self._arguments = [name, str(data), str(state), *plugins]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._queue = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._closed = False

    def start(self) -> Connection:
        """Return the connection to a process that has finished its imports, and start it if there is none.

        Raises:
            FealError: it ended before it was ready.
        """
        if self._connection is not None:
            return self._connection
        here, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [*self._command, str(there.fileno()), *self._arguments],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self._connection = connection = Connection(here.detach())
        with suppress(EOFError, OSError):
            if connection.poll(WORKER_START_SECONDS) and connection.recv_bytes() == READY and not self._closed:
                return connection
        self._end()
        raise FealError(f"Site {self._name} cannot start its worker process: see {self._log.name}.")

    def submit(self, run: str, request: bytes, *, timeout: float | None) -> Future[Delivery]:
        """Queue a request of a run and return the future reply."""
        return self._queue.submit(self.handle, run, request, timeout=timeout)

    def handle(self, run: str, request: bytes, *, timeout: float | None) -> Delivery:
        """Send a request of a run to the process and return its reply."""
        try:
            connection = self.start()
            connection.send_bytes(run.encode())
            connection.send_bytes(request)
            if not connection.poll(timeout):
                self._end()
                return DeliveryFailure.from_timeout(self._name, timeout or 0.0)
            frame = connection.recv_bytes()
        except FealError:
            return DeliveryFailure(
                reason=f"Site {self._name} cannot start its worker process: see the log at the site."
            )
        except (EOFError, OSError):
            self._end()
            return DeliveryFailure(
                reason=f"Site {self._name}'s process ended before it answered: killed, or out of memory."
            )
        return frame[1:] if frame[:1] == REPLY else DeliveryFailure(reason=frame[1:].decode())

    def close(self) -> None:
        """End the process, even if it is busy."""
        self._closed = True
        if self._process is not None:
            self._process.kill()  # a thread that waits for its reply is woken up
        self._queue.shutdown(wait=True, cancel_futures=True)
        self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def run_worker(handler: RequestHandler = handle_request) -> None:
    """Answer messages until the parent closes the socket."""
    parent, descriptor, name, data, state, *plugins = sys.argv[1:]
    exit_with_parent(int(parent))
    connection = Connection(int(descriptor))
    try:
        connection.send_bytes(READY)
        while True:
            run, request = connection.recv_bytes().decode(), connection.recv_bytes()
            frame = answer_frame(
                handler,
                name,
                request,
                run=run,
                data=Path(data),
                state=Path(state),
                plugins=plugins,
            )
            connection.send_bytes(frame)
    except (EOFError, ConnectionError):
        return


def find_run_directory(state: Path, run: str) -> Path:
    """Return a site's directory of a run; raise a `ShareableError` if the id is invalid."""
    if not _RUN.fullmatch(run):
        raise ShareableError(
            "The coordinator's message names no run: install the same version of feal everywhere."
        )
    return state / "runs" / run


def answer_frame(
    handler: RequestHandler,
    name: str,
    request: bytes,
    *,
    run: str,
    data: Path,
    state: Path,
    plugins: Collection[str] = (),
) -> bytes:
    """Return the frame for the coordinator: the reply, or the reason for its absence without private details."""
    try:
        folder = find_run_directory(state, run)
        join = _decode_join(request)
        if join is not None:
            _check_plugins(join.configuration, name, plugins)
        reply = handler(name, request, data=data, folder=RunDirectory(folder).sites)
        if join is not None:
            _write_configuration(folder, join, data)
        return REPLY + reply
    except ShareableError as error:
        return FAILURE + str(error).encode()
    except Exception as error:
        print(f"Site {name} failed with {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        what = (
            "could not start to answer" if isinstance(error, FealError) else f"failed with {type(error).__name__}"
        )
        return FAILURE + f"Site {name} {what}: see logs/site.log there.".encode()


def _decode_join(request: bytes) -> messages.Join | None:
    """Return the request if it is a `Join`; the weights of other requests are not decoded."""
    kind = json.loads(read_metadata(request).get("message", "{}")).get("kind")
    asked = messages.decode_request(request) if kind == messages.Join.kind else None
    return asked if isinstance(asked, messages.Join) else None


def _check_plugins(configuration: Mapping[str, Any], name: str, allowed: Collection[str]) -> None:
    """Raise a `ShareableError` for a plugin that the site did not allow."""
    settings = Settings.model_validate(configuration)
    for plugin in (settings.strategy.name, settings.model.name, *settings.metrics):
        if ":" in plugin and plugin not in allowed:
            raise ShareableError(
                f"Site {name} runs only code that it allows: use built-in classes, "
                f"or add '{plugin}' to plugins in its site.yaml and restart the site."
            )


def _write_configuration(folder: Path, join: messages.Join, data: Path) -> None:
    """Write the configuration, so that `feal labels` works at this site and finds its data."""
    run = RunDirectory(folder)
    if not run.config.exists():
        write_config(run, {**join.configuration, "dataset": str(data)})


if __name__ == "__main__":
    run_worker()
