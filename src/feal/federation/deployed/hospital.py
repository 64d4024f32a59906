"""What `feal deploy site` runs: a SuperNode that dials out, and the hand that does its work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO

import httpx

from feal.data import open_prepared
from feal.deployment.addresses import check_plain, host_and_port
from feal.deployment.credentials import site_authority, site_key
from feal.deployment.direct import direct, own_hosts
from feal.deployment.places import SitePlace
from feal.deployment.refusals import refusal
from feal.deployment.secrecy import new_secret, private_folder
from feal.errors import FealError
from feal.federation.deployed.hand import COMMAND, Hand
from feal.federation.deployed.worker import PAUSE_SECONDS, Worker
from feal.files import locked

AGAIN_SECONDS = 5.0
REFUSED_SECONDS = 45.0
"""Longer than the coordinator takes a SuperNode that was killed for being there still."""
END_SECONDS = 8.0
SEVERAL_MEGABYTES = 20 * 2**20
SOME_LINES = 4000

LOST = ("Failed to send message", "Failed to receive message")
"""What a SuperNode says of a message that it lets go of; one that connects anew is sent it again."""

Say = Callable[[str], None]


def serve(place: SitePlace, *, insecure: bool, say: Say, hand: Sequence[str] = COMMAND) -> None:
    """Answer the coordinator's messages until this process is asked to end.

    Args:
        place: the site's folder and settings.
        insecure: speak plain text, on this machine's loopback address only.
        say: is told in a sentence what happens.
        hand: command of the process that does the work.

    Raises:
        FealError: data, keys or certificates that cannot be used, or a coordinator that refuses the site.
    """
    host, _ = host_and_port(place.settings.coordinator)
    if insecure:
        check_plain(host)
    open_prepared(place.data).site(place.settings.name)
    private_folder(place.state)
    (place.state / "logs").mkdir(exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(locked(place.state))
        log = stack.enter_context(_log(place.state / "logs" / "site.log"))
        own = Hand(
            place.settings.name,
            data=place.data,
            state=place.state,
            log=log,
            strategies=place.settings.strategies,
            command=hand,
        )
        stack.enter_context(closing(own))
        node = stack.enter_context(closing(_Node(place, insecure=insecure, say=say)))
        own.ready()
        while True:
            node.attend()
            said = _stepped(node, own)
            if said:
                say(said)


def _stepped(node: _Node, hand: Hand) -> str:
    """What came of a moment's work, in a sentence, if anything."""
    try:
        return node.worker(hand).step()
    except httpx.ConnectError:
        time.sleep(PAUSE_SECONDS)  # the SuperNode is starting, or has ended: it is attended to at the next turn
        return ""
    except Exception as error:
        # The SuperNode waits for an answer that will not come. One that connects anew is sent the message again.
        node.renew()
        return f"A message got lost between processes ({type(error).__name__}: {error}): it is asked for again."


class _Node:
    """The SuperNode's process and what its log says of the connection."""

    def __init__(self, place: SitePlace, *, insecure: bool, say: Say) -> None:
        self._place = place
        self._insecure = insecure
        self._say = say
        self._said = ""
        self._path = place.state / "logs" / "supernode.log"
        self._read = 0
        self._refused_since: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._worker: Worker | None = None
        self._start()

    def worker(self, hand: Hand) -> Worker:
        """Whoever takes messages from the SuperNode that runs now."""
        if self._worker is None:
            address = f"127.0.0.1:{self._port}"
            self._worker = Worker(self._place.settings.name, address=address, secret=self._secret, hand=hand)
        return self._worker

    def attend(self) -> None:
        """Tell what is new, and start a SuperNode anew that ended; a `FealError` if that would not help."""
        text = self._news()
        coordinator = self._place.settings.coordinator
        if "SuperNode ID" in text or "Connection successful" in text:
            self._refused_since = None
            self._tell(f"Connected to the coordinator at {coordinator}.")
        elif "Connection attempt failed" in text:
            self._tell(f"The coordinator at {coordinator} does not answer: trying again until it does.")
        if any(lost in text for lost in LOST):
            self._tell("A message got lost on the way: it is asked for again.")
            self.renew()
        elif self._process is not None and self._process.poll() is not None:
            self._news()
            self._judge(self._last)
            time.sleep(AGAIN_SECONDS)
            self.renew()

    def renew(self) -> None:
        """Have another SuperNode in the place of this one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the SuperNode; the coordinator is told that the site goes."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _start(self) -> None:
        self._last = ""
        self._port = _free_port()
        key = self._place.state / "supernode.key"
        self._secret = new_secret(key)
        host, _ = host_and_port(self._place.settings.coordinator)
        with _log(self._path) as log:
            self._read = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "feal.deployment.supernode", str(os.getpid()), *self._options(key)],
                env={**os.environ, **direct(*own_hosts(host)), "FLWR_HOME": str(self._place.state / "flower")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _options(self, key: Path) -> list[str]:
        settings = self._place.settings
        options = ["--superlink", settings.coordinator, "--host", "127.0.0.1", "--port", str(self._port)]
        options += ["--isolation", "process", "--superexec-auth-secret-file", str(key)]
        if self._insecure:
            return [*options, "--insecure"]
        options += ["--root-certificates", str(site_authority(self._place))]
        return [*options, "--auth-supernode-private-key", str(site_key(self._place))]

    def _news(self) -> str:
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        self._read += len(text)
        news = text.decode(errors="replace")
        self._last = (self._last + news)[-SOME_LINES:]
        return news

    def _tell(self, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            self._say(sentence)

    def _judge(self, text: str) -> None:
        coordinator, log = self._place.settings.coordinator, self._path
        told = refusal(text, self._place.settings)
        if told is not None:
            if told.final:
                raise FealError(told.sentence)
            self._tell(told.sentence)
            return
        if "Failed to activate" in text:
            self._refused_since = self._refused_since or time.monotonic()
            if time.monotonic() - self._refused_since > REFUSED_SECONDS:
                raise FealError(
                    f"The coordinator at {coordinator} does not know this site's key, or it is in use elsewhere: "
                    f"send it {self._place.settings.key}.pub to enter in its coordinator.yaml, and start again."
                )
            self._tell(f"The coordinator at {coordinator} does not let this key in yet: trying again.")
            return
        self._tell(f"The SuperNode ended and is started again; {log} says why.")


@contextmanager
def _log(path: Path) -> Iterator[IO[bytes]]:
    """A log to add to; the one before it is kept once this one is long."""
    if path.exists() and path.stat().st_size > SEVERAL_MEGABYTES:
        path.replace(path.with_suffix(".old.log"))
    with path.open("ab") as file:
        yield file


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
