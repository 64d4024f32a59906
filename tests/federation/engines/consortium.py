"""A coordinator and sites as processes on this machine, made and started as a consortium would."""

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
from feal.deployment.kit import write_kit
from tests.federation.engines.recorder import Recorder
from tests.paths import PROJECT

FEAL = (sys.executable, "-c", "from feal.cli import main; main()")
PARENT_DEATH_SIGNAL = 1
# Nobody is there: whoever asked a proxy for addresses of this machine would not get far.
PROXIES = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9")
SECONDS = 240.0
"""For whatever should happen soon, on a machine that others keep busy."""


def until(condition: Callable[[], Any], what: str, *, seconds: float = SECONDS) -> Any:
    """Wait for something that should happen, and give what made it true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A process in a group of its own, with everything below it; what it prints is in `log`."""

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
        """All it printed so far."""
        return self.log.read_text()

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(SECONDS)

    def alive(self) -> bool:
        return self._process.poll() is None

    def members(self) -> set[int]:
        """It and all that it started, as far as they run."""
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _session(path) == self.pid}

    def stop(self) -> None:
        """Ask it to end."""
        if self.alive():
            self._process.terminate()
        self._process.wait(30)

    def kill(self, *, all_of_it: bool = True) -> None:
        """End it, at once and with everything below it, or it alone."""
        for pid in self.members() if all_of_it else {self.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(30)


def _end_with_this_process() -> None:
    """Have Linux ask a process to end once the tests' own process is gone, even if that was killed."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _session(path: Path) -> int:
    try:
        state, _, _, session, *_ = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(session) if state != "Z" else 0


def supernode(site: Process) -> int:
    """The process of a site that is its SuperNode."""
    words = {pid: (Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in site.members()}
    (found,) = (pid for pid, line in words.items() if b"feal.deployment.supernode" in line)
    return found


class Consortium:
    """Three folders of one machine each, and whatever of them runs; `close` leaves no process."""

    def __init__(self, root: Path, *, data: Path, recorded: bool = True) -> None:
        self.port = free_port()
        self.sites = open_prepared(data).sites
        self.root = root / "consortium"
        self.coordinator = self.root / "coordinator"
        write_kit(self.root, address=f"127.0.0.1:{self.port}", sites=self.sites)
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
        """The folder of a site's machine."""
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
            words = [sys.executable, "-m", "tests.federation.engines.saboteur", str(place)]
        return self._start(place.name, [*words, *(["--insecure"] if insecure else [])])

    def start(self, *, sabotaged: Sequence[str] = ()) -> None:
        """The coordinator, and then all sites."""
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
        """Where a site keeps what concerns a run."""
        number = str(json.loads((run / "deployment.json").read_text())["run"])
        return self.place(site) / "state" / "runs" / number

    def gathered(self, run: Path) -> Path:
        """The run's folder, with what each site keeps at home beside it, as a run in one process has it."""
        for name in self.sites:
            shutil.copytree(self.run_folder(run, name) / "sites" / name, run / "sites" / name, dirs_exist_ok=True)
        return run

    def close(self) -> None:
        """End everything."""
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
    """The part of a prepared set that one site holds."""
    folder.mkdir()
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["sites"] = {site: manifest["sites"][site]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree(data / site, folder / site)


def _script(path: Path) -> None:
    subprocess.run(["sh", str(path)], check=True, capture_output=True)
