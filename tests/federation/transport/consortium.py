"""A coordinator and sites as processes on this machine, set up as in a consortium."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feal.data import open_prepared
from feal.federation.transport.deploy.config import write_consortium_files
from tests.federation.transport.recorder import Recorder
from tests.paths import PROJECT

FEAL = (sys.executable, "-c", "from feal.cli import main; main()")
PARENT_DEATH_SIGNAL = 1
# No proxy listens there: a connection within this machine that used it would fail.
PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9")
SECONDS = 240.0
"""Timeout for anything that should happen soon, on a busy machine."""


def until(condition: Callable[[], Any], what: str, *, seconds: float = SECONDS) -> Any:
    """Wait until a condition is true, and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A process in a new session; its output is in `log`."""

    def __init__(self, words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                words,
                cwd=PROJECT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_this_process,
            )
        self.pid = self._process.pid

    def said(self) -> str:
        """Return its output so far."""
        return self.log.read_text()

    def ended(self) -> int:
        """Wait for its end and return the exit code."""
        return self._process.wait(SECONDS)

    def alive(self) -> bool:
        return self._process.poll() is None

    def members(self) -> set[int]:
        """Return all running processes of its session."""
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _session(path) == self.pid}

    def stop(self) -> None:
        """Terminate it."""
        if self.alive():
            self._process.terminate()
        self._process.wait(30)

    def kill(self, *, all_of_it: bool = True) -> None:
        """Kill its session, or it alone."""
        for pid in self.members() if all_of_it else {self.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(30)


def _end_with_this_process() -> None:
    """Have Linux terminate a process when the test process ends, even if killed."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _session(path: Path) -> int:
    try:
        state, _, _, session, *_ = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(session) if state != "Z" else 0


def supernode(site: Process) -> int:
    """Return the SuperNode's process of a site."""
    words = {pid: (Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in site.members()}
    (found,) = (pid for pid, line in words.items() if b"feal.federation.transport.deploy.supernode" in line)
    return found


class Consortium:
    """The folders of three machines and their processes; `close` ends all of them."""

    def __init__(self, root: Path, *, data: Path, recorded: bool = True) -> None:
        self.port = free_port()
        self.sites = open_prepared(data).sites
        self.root = root / "consortium"
        self.coordinator = self.root / "coordinator"
        write_consortium_files(self.root, address=f"127.0.0.1:{self.port}", sites=self.sites)
        _script(self.coordinator / "make-certificates.sh")
        self.recorder = Recorder(target=self.port, certificates=self.coordinator / "certificates", keep=recorded)
        for name in self.sites:
            _script(self.place(name) / "make-key.sh")
            shutil.copy(self.coordinator / "certificates" / "authority.crt", self.place(name))
            shutil.copy(self.place(name) / "node.key.pub", self.coordinator / "keys" / f"{name}.pub")
            self._dial_recorder(name)
            only(name, data, self.place(name) / "prepared")
        self.running: dict[str, Process] = {}
        self.past: list[Process] = []

    def place(self, site: str) -> Path:
        """Return the folder of a site."""
        return self.root / "sites" / site

    def start_coordinator(self) -> Process:
        words = [*FEAL, "deploy", "coordinator", str(self.coordinator)]
        process = self._start("coordinator", words)
        until(lambda: "listens at" in process.said() or not process.alive(), "the coordinator's start")
        assert process.alive(), process.said()
        return process

    def start_site(
        self, name: str, *, folder: Path | None = None, sabotaged: bool = False, insecure: bool = False
    ) -> Process:
        place = folder or self.place(name)
        words = [*FEAL, "deploy", "site", str(place), "--data", str(self.place(name) / "prepared")]
        if sabotaged:
            words = [sys.executable, "-m", "tests.federation.transport.saboteur", str(place)]
        return self._start(place.name, [*words, *(["--insecure"] if insecure else [])])

    def start(self, *, sabotaged: Sequence[str] = ()) -> None:
        """Start the coordinator, then all sites."""
        self.start_coordinator()
        for name in self.sites:
            self.start_site(name, sabotaged=name in sabotaged)
        self.await_connected(*self.sites)

    def await_connected(self, *names: str) -> None:
        for name in names:
            process = self.running[name]
            until(lambda: "Connected" in process.said() or not process.alive(), f"{name}'s connection")  # noqa: B023
            assert process.alive(), process.said()

    def run_folder(self, run: Path, site: str) -> Path:
        """Return a site's directory of a run."""
        number = str(json.loads((run / "deployment.json").read_text())["run"])
        return self.place(site) / "state" / "runs" / number

    def gathered(self, run: Path) -> Path:
        """Copy the directory of each site into the run directory, as a run in one process has them."""
        for name in self.sites:
            shutil.copytree(self.run_folder(run, name) / "sites" / name, run / "sites" / name, dirs_exist_ok=True)
        return run

    def close(self) -> None:
        """End all processes."""
        for process in self.past:
            process.kill()
        self.recorder.close()

    def _start(self, name: str, words: Sequence[str]) -> Process:
        environment = {"SABOTAGE": str(self.root / "sabotage.json"), **PROXIES}
        process = Process(words, self.root / f"{name}-{len(self.past)}.log", environment)
        self.running[name] = process
        self.past.append(process)
        return process

    def _dial_recorder(self, name: str) -> None:
        path = self.place(name) / "site.yaml"
        path.write_text(path.read_text().replace(f":{self.port}", f":{self.recorder.port}"))


def only(site: str, data: Path, folder: Path) -> None:
    """Write the part of a prepared set that belongs to one site."""
    folder.mkdir()
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["sites"] = {site: manifest["sites"][site]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(data / site, folder / site)


def _script(path: Path) -> None:
    subprocess.run(["sh", str(path)], check=True, capture_output=True)
