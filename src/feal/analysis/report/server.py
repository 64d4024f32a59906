"""The live report: a page for this machine only that follows the runs in a directory, and their status."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, get_args

from feal.analysis.report.build import Report, build_report, pack_charts, render_body, render_page
from feal.analysis.runs import find_runs, read_runs
from feal.errors import FealError
from feal.fileio import lock_holder
from feal.plugins import short_name
from feal.rundir.journal import Journal, State
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import Store

ADDRESS = "127.0.0.1"
POLL_INTERVAL = 1.0
"""Seconds between two reads of the directory, however many pages ask."""
RETRY_DELAY = 5.0
RunStage = Literal["running", "waiting", "stopped", "unreadable", "not started", "finished"]
"""In the order in which they are listed."""
MAX_LISTED = 12
"""Runs that are listed one by one."""


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


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run: its name below the directory, its stage, and the details in words."""

    name: str
    stage: RunStage
    detail: str
    share: float = 0.0
    """Of its rounds that are done."""
    key: str
    """Changes whenever there are new metrics."""


@dataclass(frozen=True, kw_only=True)
class DirectoryStatus:
    """All runs below a directory."""

    summary: str
    runs: tuple[RunStatus, ...] = ()

    @property
    def version(self) -> str:
        """Return a key that changes whenever a report over the runs would."""
        keys = json.dumps([run.key for run in self.runs])
        return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return what the live page shows."""
        listed = [run for run in self.runs if run.stage != "finished"] if len(self.runs) > 1 else self.runs
        lines = [{"name": run.name, "detail": run.detail} for run in listed[:MAX_LISTED]]
        if len(listed) > MAX_LISTED:
            lines.append({"name": "", "detail": f"and {len(listed) - MAX_LISTED} more"})
        done = round(sum(run.share for run in self.runs), 3)
        return {"summary": self.summary, "done": done, "all": len(self.runs), "runs": lines}


def read_run_statuses(place: Path) -> DirectoryStatus:
    """Return the status of the runs at or below a directory, which may be empty or missing."""
    if not place.is_dir():
        return DirectoryStatus(summary=f"{place} is gone: waiting for it; the report below is from before.")
    try:
        paths = find_runs([place])
    except (FealError, OSError):
        return DirectoryStatus(summary=f"There is no run in {place} yet: waiting for one.")
    order = get_args(RunStage)
    runs = [_read_run_status(path, place) for path in paths]
    runs.sort(key=lambda run: (order.index(run.stage), run.name))
    summary = f"{runs[0].name}: {runs[0].detail}"
    if len(runs) > 1:
        counts = Counter(run.stage for run in runs)
        others = "".join(f", {counts[stage]} {stage}" for stage in order[:-1] if counts[stage])
        summary = f"{counts['finished']} of {len(runs)} runs finished{others}"
    return DirectoryStatus(summary=summary, runs=tuple(runs))


def _read_run_status(path: Path, place: Path) -> RunStatus:
    name = str(path.relative_to(place)) if path != place else path.name
    is_running = lock_holder(path) is not None
    try:
        journal = Journal(path)
        if not journal.has_state():
            if is_running:
                return RunStatus(name=name, stage="running", detail="is starting", key=name)
            detail = f"has not started: feal resume {path}"
            return RunStatus(name=name, stage="not started", detail=detail, key=name)
        state = journal.load()
    except FealError as error:
        return RunStatus(name=name, stage="unreadable", detail=str(error), key=f"{name} {error}")
    stage, detail, share = _describe(path, state, is_running)
    settled = state.stage if state.stage in ("finished", "waiting") else ""
    return RunStatus(
        name=f"{name} ({short_name(state.configuration['strategy']['name'])}, seed {state.configuration['seed']})",
        stage=stage,
        detail=detail,
        share=min(1.0, share),
        key=f"{name} {state.round_bytes} {settled}",
    )


def _describe(path: Path, state: State, is_running: bool) -> tuple[RunStage, str, float]:
    """Return the stage of a run, its details in words, and the share of its rounds that are done."""
    if state.stage == "finished":
        return "finished", f"finished after {max(1, state.round)} round{'s' * (state.round > 1)}", 1.0
    rounds = max(1, int(state.configuration["rounds"]))
    share = state.round / rounds
    if state.stage == "waiting":
        pending = f"waiting for labels of round {state.round + 1} of {rounds}{_count_pending(path)}"
        return "waiting", pending, share
    where = f"closing round {state.round} of {rounds}" if state.round else "querying the first labels"
    if state.stage == "train":
        steps = max(1, int(state.configuration["communication_rounds"]))
        where = f"round {state.round} of {rounds}, communication round {state.step + 1} of {steps}"
        share = (max(0, state.round - 1) + state.step / steps) / rounds
    if not is_running:
        return "stopped", f"stopped in {where}: feal resume {path}", share
    # Sites that have not replied in this communication round are named once another has.
    replied = RunDirectory(path).replied_sites()
    missing = ", ".join(sorted(set(state.labels) - replied)) if replied else ""
    return "running", f"{where}, waiting for {missing}" if missing else where, share


def _count_pending(path: Path) -> str:
    counts = []
    for site in RunDirectory(path).site_directories():
        try:
            with closing(Store(site.database, read_only=True)) as store:
                pending = len(store.pending())
        except FealError:
            continue
        if pending:
            counts.append(f"{pending} at {site.name}")
    return f": {', '.join(counts)}" if counts else ""
