"""A site's own process for the work of messages, seen from the process that holds it."""

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
from feal.federation.deployed.handwork import READY, REPLY
from feal.federation.engines.contract import Lost, out_of_time

COMMAND = (sys.executable, "-m", "feal.federation.deployed.handwork")
START_SECONDS = 300.0


class Hand:
    """Starts the process, gives it one message at a time, and makes it anew after it died or took too long.

    What is asked while it is at a message comes after that.
    """

    def __init__(
        self,
        name: str,
        *,
        data: Path,
        state: Path,
        log: IO[bytes],
        strategies: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._name = name
        self._words = [*command, str(os.getpid())]
        self._places = [name, str(data), str(state), *strategies]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="hand")
        self._closed = False

    def ready(self) -> Connection:
        """The connection to a process that has imported what it needs.

        Raises:
            FealError: it ended before it got there.
        """
        if self._connection is not None:
            return self._connection
        here, there = socket.socketpair()
        with there:
            self._process = subprocess.Popen(
                [*self._words, str(there.fileno()), *self._places],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        self._connection = connection = Connection(here.detach())
        with suppress(EOFError, OSError):
            if connection.poll(START_SECONDS) and connection.recv_bytes() == READY and not self._closed:
                return connection
        self._end()
        raise FealError(f"Site {self._name} cannot start its own process: {self._log.name} says why.")

    def ask(self, run: str, request: bytes, *, timeout: float | None) -> Future[bytes | Lost]:
        """The site's reply to a request of a run, when it is its turn."""
        return self._turns.submit(self.answer, run, request, timeout=timeout)

    def answer(self, run: str, request: bytes, *, timeout: float | None) -> bytes | Lost:
        """The site's reply to a request of a run."""
        try:
            connection = self.ready()
            connection.send_bytes(run.encode())
            connection.send_bytes(request)
            if not connection.poll(timeout):
                self._end()
                return out_of_time(self._name, timeout or 0.0)
            frame = connection.recv_bytes()
        except FealError:
            return Lost(reason=f"Site {self._name} cannot start its own process: its own log says why.")
        except (EOFError, OSError):
            self._end()
            return Lost(reason=f"Site {self._name}'s process ended before it answered: killed, or out of memory.")
        return frame[1:] if frame[:1] == REPLY else Lost(reason=frame[1:].decode())

    def close(self) -> None:
        """End the process, whatever it is at."""
        self._closed = True
        if self._process is not None:
            self._process.kill()  # whoever waits for it in another thread notices
        self._turns.shutdown(wait=True, cancel_futures=True)
        self._end()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
