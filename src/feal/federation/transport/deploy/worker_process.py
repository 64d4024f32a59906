"""Start and control the worker process of a site."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from feal.errors import FealError
from feal.federation.transport.base import DeliveryFailure
from feal.federation.transport.deploy.worker_main import READY, REPLY

WORKER_COMMAND = (sys.executable, "-m", "feal.federation.transport.deploy.worker_main")
WORKER_START_SECONDS = 300.0


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

    def submit(self, run: str, request: bytes, *, timeout: float | None) -> Future[bytes | DeliveryFailure]:
        """Queue a request of a run and return the future reply."""
        return self._queue.submit(self.handle, run, request, timeout=timeout)

    def handle(self, run: str, request: bytes, *, timeout: float | None) -> bytes | DeliveryFailure:
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
