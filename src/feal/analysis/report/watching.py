"""The report, live: a page of this machine alone that follows the runs in a folder."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from feal.analysis.report.contents import Contents, contents
from feal.analysis.report.page import drawings, render, render_contents
from feal.analysis.report.progress import Progress, progress
from feal.analysis.runs import read_runs
from feal.errors import FealError

ADDRESS = "127.0.0.1"
LOOK_EVERY = 1.0
"""Seconds between two looks at the folder, however many pages ask."""
RETRY_AFTER = 5.0


class Follower:
    """What the page shows of a folder; a thread of its own makes it anew when there are new figures.

    Whatever happens to the folder, the last good contents stay, with a sentence about what is wrong.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._looked: tuple[float, Progress] = (float("-inf"), progress(place))
        self._version, self._built, self._not_before = "", "", 0.0
        self._contents = _nothing_yet(place)
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def page(self) -> bytes:
        """The whole page as it is now."""
        version, made = self._shown()
        return render(made, live=version).encode()

    def progress(self) -> bytes:
        """JSON: how the runs stand, and the version of the contents that there are."""
        return json.dumps({**self._look().content(), "version": self._shown()[0]}).encode()

    def contents(self) -> bytes:
        """JSON: what replaces the page's contents."""
        version, made = self._shown()
        head = json.dumps({"version": version, "html": render_contents(made)})
        return f'{head[:-1]}, "figures": {drawings(made)}}}'.encode()

    def _shown(self) -> tuple[str, Contents]:
        with self._lock:
            return self._version, self._contents

    def _look(self) -> Progress:
        with self._lock:
            when, seen = self._looked
            if time.monotonic() - when > LOOK_EVERY:
                seen = progress(self._place)
                self._looked = (time.monotonic(), seen)
            return seen

    def _follow(self) -> None:
        while not self._stop.is_set():
            seen = self._look()
            # A folder without runs was emptied or taken away: what was there is still worth reading.
            if seen.runs and seen.version != self._built and time.monotonic() >= self._not_before:
                self._renew(seen)
            self._stop.wait(LOOK_EVERY)

    def _renew(self, seen: Progress) -> None:
        version, made, problem = seen.version, self._shown()[1], ""
        try:
            made = contents(read_runs([self._place]))
        except FealError as error:
            problem = str(error)
        except Exception as error:
            # A run that is written at this moment can look like anything: the page must outlive it.
            problem = f"The report could not be made anew ({type(error).__name__}: {error}): it is tried again."
        if problem:
            version, made = f"{seen.version} {problem}", replace(made, notices=(problem,))
            self._not_before = time.monotonic() + RETRY_AFTER
        # What changed while it was read is neither the old state nor surely the new one: it is read again.
        whole = not problem and progress(self._place).version == seen.version
        self._built = seen.version if whole else ""
        with self._lock:
            self._version, self._contents = version, made


def serve(follower: Follower, *, port: int) -> ThreadingHTTPServer:
    """A server for the page, on this machine's own address only; port 0 takes a free one.

    Raises:
        FealError: the port is taken or not allowed.
    """
    answers = {
        "/": ("text/html; charset=utf-8", follower.page),
        "/progress.json": ("application/json", follower.progress),
        "/contents.json": ("application/json", follower.contents),
    }
    try:
        return _Server((ADDRESS, port), _handler(answers))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "there are 65535 of them"
        raise FealError(f"Port {port} cannot be used ({why}): choose another --port.") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that is closed while it is answered is nobody's mistake."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _handler(answers: dict[str, tuple[str, Callable[[], bytes]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server: ThreadingHTTPServer
        server_version, sys_version = "feal", ""
        timeout = 30

        def do_GET(self) -> None:
            kind, answer = answers.get(self.path.partition("?")[0], ("", None))
            if not self._is_for_us():
                self.send_error(HTTPStatus.FORBIDDEN, "This page answers this machine only")
            elif answer is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(kind, answer())

        def _is_for_us(self) -> bool:
            """Whether the browser asked for us by our own name: a foreign one may have been pointed here."""
            own = [f"{name}:{self.server.server_port}" for name in ("127.0.0.1", "localhost")]
            return self.headers.get("Host", "") in own

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "X-Frame-Options": "DENY",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Referrer-Policy": "no-referrer",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads a line for every look."""

    return Handler


def _nothing_yet(place: Path) -> Contents:
    return Contents(title=f"Watching {place}", about="There is nothing to show yet: the page fills by itself.")
