"""The live report: a page for this machine only that follows the runs in a directory."""

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

from feal.analysis.report.build import Report, build_report, pack_charts, render_body, render_page
from feal.analysis.report.status import DirectoryStatus, read_run_statuses
from feal.analysis.runs import read_runs
from feal.errors import FealError

ADDRESS = "127.0.0.1"
POLL_INTERVAL = 1.0
"""Seconds between two reads of the directory, however many pages ask."""
RETRY_DELAY = 5.0


class LiveReport:
    """The report over a directory; its own thread rebuilds it when there are new metrics.

    Whatever happens to the directory, the last good report stays, with a sentence about the problem.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._polled: tuple[float, DirectoryStatus] = (float("-inf"), read_run_statuses(place))
        self._version, self._built, self._not_before = "", "", 0.0
        self._report = Report(
            title=f"Watching {place}", about="There is nothing to show yet: the page updates by itself."
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> LiveReport:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def page(self) -> bytes:
        """Return the whole page in its present form."""
        version, report = self._current()
        return render_page(report, live=version).encode()

    def status(self) -> bytes:
        """Return JSON: the status of the runs, and the version of the present report."""
        return json.dumps({**self._poll().to_json(), "version": self._current()[0]}).encode()

    def content(self) -> bytes:
        """Return JSON: what replaces the content of the page."""
        version, report = self._current()
        content = {"version": version, "html": render_body(report), "charts": pack_charts(report)}
        return json.dumps(content).encode()

    def _current(self) -> tuple[str, Report]:
        with self._lock:
            return self._version, self._report

    def _poll(self) -> DirectoryStatus:
        with self._lock:
            when, status = self._polled
            if time.monotonic() - when > POLL_INTERVAL:
                status = read_run_statuses(self._place)
                self._polled = (time.monotonic(), status)
            return status

    def _follow(self) -> None:
        while not self._stop.is_set():
            status = self._poll()
            # A directory without runs was emptied or removed: the last report is still worth reading.
            if status.runs and status.version != self._built and time.monotonic() >= self._not_before:
                self._rebuild(status)
            self._stop.wait(POLL_INTERVAL)

    def _rebuild(self, status: DirectoryStatus) -> None:
        version, report, problem = status.version, self._current()[1], ""
        try:
            report = build_report(read_runs([self._place]))
        except FealError as error:
            problem = str(error)
        except Exception as error:
            # A run that is being written can be inconsistent in any way: the page must survive it.
            problem = f"The report could not be rebuilt ({type(error).__name__}: {error}); retrying."
        if problem:
            version, report = f"{status.version} {problem}", replace(report, notices=(problem,))
            self._not_before = time.monotonic() + RETRY_DELAY
        # If the directory changed during reading, the report may mix two states: it is built again.
        is_consistent = not problem and read_run_statuses(self._place).version == status.version
        self._built = status.version if is_consistent else ""
        with self._lock:
            self._version, self._report = version, report


def open_server(live: LiveReport, *, port: int) -> ThreadingHTTPServer:
    """Return a server for the page, on the loopback address only; port 0 takes a free one.

    Raises:
        FealError: the port is in use or not allowed.
    """
    pages = {
        "/": ("text/html; charset=utf-8", live.page),
        "/status.json": ("application/json", live.status),
        "/content.json": ("application/json", live.content),
    }
    try:
        return _Server((ADDRESS, port), _make_handler(pages))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "there are 65535 of them"
        raise FealError(f"Port {port} cannot be used ({why}): choose another --port.") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a page that is closed during a reply."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _make_handler(pages: dict[str, tuple[str, Callable[[], bytes]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server: ThreadingHTTPServer
        server_version, sys_version = "feal", ""
        timeout = 30

        def do_GET(self) -> None:
            kind, make = pages.get(self.path.partition("?")[0], ("", None))
            if not self._is_own_host():
                self.send_error(HTTPStatus.FORBIDDEN, "This page is for this machine only")
            elif make is None:
                self.send_error(HTTPStatus.NOT_FOUND)
            else:
                self._send(kind, make())

        def _is_own_host(self) -> bool:
            """Return whether the Host header is ours; a foreign name may have been resolved to this address."""
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
            """Log nothing: pages poll every second."""

    return Handler
