"""Serve a site (`feal deploy site`): a SuperNode that connects to the coordinator, and a worker process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from feal.data import open_prepared
from feal.errors import FealError
from feal.federation.transport.deploy.config import (
    LOOPBACK,
    SiteConfig,
    SiteSettings,
    check_loopback,
    extend_no_proxy,
    is_loopback,
    parse_address,
)
from feal.federation.transport.deploy.credentials import (
    find_site_authority,
    find_site_key,
    make_private_directory,
    write_secret,
)
from feal.federation.transport.deploy.supernode import STEP_SECONDS, MessageLoop
from feal.federation.transport.deploy.worker import WORKER_COMMAND, WorkerProcess
from feal.fileio import lock_directory

RESTART_SECONDS = 5.0
REFUSED_SECONDS = 45.0
"""Longer than the coordinator considers a killed SuperNode to be connected."""
STOP_SECONDS = 8.0
MAX_LOG_FILE_BYTES = 20 * 2**20
LOG_TAIL_CHARACTERS = 4000

LOST_MESSAGE_LOGS = ("Failed to send message", "Failed to receive message")
"""What a SuperNode logs when it drops a message, which it receives again after it reconnects."""

_Notify = Callable[[str], None]


@dataclass(frozen=True)
class ConnectionProblem:
    """A connection failure in a sentence, and whether retrying is useless."""

    sentence: str
    is_final: bool


# Log messages of OpenSSL and Flower. A problem that is not final may be solved by waiting or at the coordinator.
_PROBLEMS = {
    "certificate has expired": ConnectionProblem(
        "The certificate of the coordinator at {address} has expired and must be renewed there. Trying again.",
        False,
    ),
    "certificate is not yet valid": ConnectionProblem(
        "The certificate of the coordinator at {address} is not valid yet: check this machine's clock. "
        "Trying again.",
        False,
    ),
    "certificate is not valid for": ConnectionProblem(
        "The certificate of the coordinator at {address} does not contain {host}: connect to a name in it, "
        "or have one created with this name.",
        True,
    ),
    "certificate verify failed": ConnectionProblem(
        "The certificate of the coordinator at {address} is not signed by {authority}: "
        "get that file from it again.",
        True,
    ),
    "WRONG_VERSION_NUMBER": ConnectionProblem(
        "The server at {address} does not use TLS: check that this is the coordinator's port.", True
    ),
    # A SuperNode whose signature is refused ends this way.
    "terminated gracefully": ConnectionProblem(
        "The coordinator at {address} rejects this site's signature: check the clocks of both machines. "
        "Trying again.",
        False,
    ),
}


def diagnose_connection(log: str, site: SiteSettings) -> ConnectionProblem | None:
    """Find the known problem in the log of a SuperNode that ended; None if there is none.

    >>> site = SiteSettings(name="alder", coordinator="hub.example.org:9092")
    >>> diagnose_connection("[SSL: WRONG_VERSION_NUMBER] wrong version number", site).sentence
    "The server at hub.example.org:9092 does not use TLS: check that this is the coordinator's port."
    """
    host, _ = parse_address(site.coordinator)
    for text, problem in _PROBLEMS.items():
        if text in log:
            sentence = problem.sentence.format(address=site.coordinator, host=host, authority=site.authority)
            return ConnectionProblem(sentence, problem.is_final)
    return None


def serve_site(
    config: SiteConfig, *, insecure: bool, notify: _Notify, command: Sequence[str] = WORKER_COMMAND
) -> None:
    """Answer the coordinator's messages until this process is terminated.

    Args:
        config: the site's folder and settings.
        insecure: use plain text, on this machine's loopback address only.
        notify: is called with a sentence for each event.
        command: command of the worker process.

    Raises:
        FealError: unusable data, keys or certificates, or a coordinator that refuses the site.
    """
    host, _ = parse_address(config.settings.coordinator)
    if insecure:
        check_loopback(host)
    open_prepared(config.data).site(config.settings.name)
    make_private_directory(config.state)
    (config.state / "logs").mkdir(exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(lock_directory(config.state))
        log = stack.enter_context(_open_log(config.state / "logs" / "site.log"))
        worker = WorkerProcess(
            config.settings.name,
            data=config.data,
            state=config.state,
            log=log,
            plugins=config.settings.plugins,
            command=command,
        )
        stack.enter_context(closing(worker))
        node = stack.enter_context(closing(_SuperNode(config, insecure=insecure, notify=notify)))
        worker.start()
        while True:
            node.check()
            event = _process_messages(node, worker)
            if event:
                notify(event)


def _process_messages(node: _SuperNode, worker: WorkerProcess) -> str:
    """Process messages for a moment; return a sentence if something happened."""
    try:
        return node.message_loop(worker).step()
    except httpx.ConnectError:
        time.sleep(STEP_SECONDS)  # the SuperNode is starting, or has ended, which the next check notices
        return ""
    except Exception as error:
        # The SuperNode waits for a reply that will not come; a new one receives the message again.
        node.restart()
        return f"A message was lost between processes ({type(error).__name__}: {error}): it is requested again."


class _SuperNode:
    """The SuperNode's process, whose log reports the state of the connection."""

    def __init__(self, config: SiteConfig, *, insecure: bool, notify: _Notify) -> None:
        self._config = config
        self._insecure = insecure
        self._notify = notify
        self._last_notice = ""
        self._path = config.state / "logs" / "supernode.log"
        self._log_position = 0
        self._refused_since: float | None = None
        self._loop: MessageLoop | None = None
        self._process = self._start()

    def message_loop(self, worker: WorkerProcess) -> MessageLoop:
        """Return the message loop of the current SuperNode."""
        if self._loop is None:
            address = f"127.0.0.1:{self._port}"
            self._loop = MessageLoop(
                self._config.settings.name, address=address, secret=self._secret, worker=worker
            )
        return self._loop

    def check(self) -> None:
        """Report what is new, and restart a SuperNode that ended; raise a `FealError` if that would not help."""
        text = self._read_log()
        coordinator = self._config.settings.coordinator
        if "SuperNode ID" in text or "Connection successful" in text:
            self._refused_since = None
            self._notify_once(f"Connected to the coordinator at {coordinator}.")
        elif "Connection attempt failed" in text:
            self._notify_once(f"The coordinator at {coordinator} does not answer: trying again until it does.")
        if any(lost in text for lost in LOST_MESSAGE_LOGS):
            self._notify_once("A message was lost on the way: it is requested again.")
            self.restart()
        elif self._process.poll() is not None:
            self._read_log()
            self._handle_exit(self._log_tail)
            time.sleep(RESTART_SECONDS)
            self.restart()

    def restart(self) -> None:
        """Replace the SuperNode by a new one."""
        self.close()
        self._process = self._start()

    def close(self) -> None:
        """End the SuperNode, which signs off from the coordinator."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._log_tail = ""
        self._port = _free_port()
        key = self._config.state / "supernode.key"
        self._secret = write_secret(key)
        host, _ = parse_address(self._config.settings.coordinator)
        command = [sys.executable, "-m", "feal.federation.transport.deploy.supernode", str(os.getpid())]
        environment = {
            **os.environ,
            **extend_no_proxy(*LOOPBACK, *([host] if is_loopback(host) else [])),
            "FLWR_HOME": str(self._config.state / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
        }
        with _open_log(self._path) as log:
            self._log_position = log.tell()
            return subprocess.Popen(
                [*command, *self._make_options(key)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _make_options(self, key: Path) -> list[str]:
        settings = self._config.settings
        options = ["--superlink", settings.coordinator, "--host", "127.0.0.1", "--port", str(self._port)]
        options += ["--isolation", "process", "--superexec-auth-secret-file", str(key)]
        if self._insecure:
            return [*options, "--insecure"]
        options += ["--root-certificates", str(find_site_authority(self._config))]
        return [*options, "--auth-supernode-private-key", str(find_site_key(self._config))]

    def _read_log(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._log_position)
            text = file.read()
        self._log_position += len(text)
        new = text.decode(errors="replace")
        self._log_tail = (self._log_tail + new)[-LOG_TAIL_CHARACTERS:]
        return new

    def _notify_once(self, sentence: str) -> None:
        if sentence != self._last_notice:
            self._last_notice = sentence
            self._notify(sentence)

    def _handle_exit(self, text: str) -> None:
        coordinator, log = self._config.settings.coordinator, self._path
        problem = diagnose_connection(text, self._config.settings)
        if problem is not None:
            if problem.is_final:
                raise FealError(problem.sentence)
            self._notify_once(problem.sentence)
            return
        if "Failed to activate" in text:
            self._refused_since = self._refused_since or time.monotonic()
            if time.monotonic() - self._refused_since > REFUSED_SECONDS:
                raise FealError(
                    f"The coordinator at {coordinator} does not know this site's key, or it is in use elsewhere: "
                    f"have {self._config.settings.key}.pub entered in its coordinator.yaml, and start again."
                )
            self._notify_once(f"The coordinator at {coordinator} does not accept this key yet: trying again.")
            return
        self._notify_once(f"The SuperNode ended and is restarted; see {log}.")


def _open_log(path: Path) -> IO[bytes]:
    """Open a log for appending; a long one is renamed first."""
    if path.exists() and path.stat().st_size > MAX_LOG_FILE_BYTES:
        path.replace(path.with_suffix(".old.log"))
    return path.open("ab")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
