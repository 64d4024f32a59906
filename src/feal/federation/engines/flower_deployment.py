"""Sites on their own machines, by Flower's SuperLink and SuperNodes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from safetensors import SafetensorError

from feal.deployment.places import coordinator_place
from feal.deployment.seen import Seen, write_seen
from feal.errors import FealError, unknown
from feal.federation.engines.contract import ENGINES, Engine, Lost, out_of_time
from feal.federation.engines.same_disk import naming
from feal.files import read_json, write_json
from feal.settings import Settings
from feal.tensors import metadata_of

if TYPE_CHECKING:
    from flwr.app import Message

    from feal.federation.engines.flower_link import Directory, Link, Node

PAUSE, LONGEST_PAUSE = 0.1, 1.0
WASTE = 0.03
"""The part of a message's time that may be lost by looking for its reply too late."""
LOOK = 3.0
"""How long it is taken for granted that sites that have a message are still there."""
GRACE = 60.0
"""How much later than at the site its time is over here: a site keeps it itself, and the way takes time too."""
RUN = "deployment.json"


@dataclass(kw_only=True)
class Flight:
    """A message to a site: given to a SuperNode, or waiting for one."""

    site: str
    node: Node | None = None
    number: str = ""
    since: float = 0.0
    """When it was given to the SuperNode."""


@ENGINES.register("flower", summary="sites on their own machines, by Flower's SuperLink and SuperNodes")
class FlowerDeployment(Engine):
    """Sends messages over the coordinator's SuperLink; a site is who the key of its SuperNode was registered for.

    A site that was cut off, or whose SuperNode was started anew, gets the message again; it knows what it did.
    """

    data_here: ClassVar[bool] = False

    def __init__(self, *, data: Path, folder: Path, settings: Settings) -> None:
        del data
        _check_installed()
        if settings.deployment.coordinator is None:
            raise FealError(
                "engine=flower needs the coordinator's folder: name it as deployment.coordinator=FOLDER "
                "(`feal deploy init` writes one)."
            )
        self._place = coordinator_place(Path(settings.deployment.coordinator))
        self._settings = settings
        self._run = folder.parent / RUN
        self._directory: Directory | None = None
        self._link: Link | None = None
        self._away: dict[str, float] = {}
        self._looked = 0.0
        self._seen = Seen(run=str(folder.parent.absolute()), sites={})
        self._names = self._named(settings.sites)

    def sites(self) -> list[str]:
        return list(self._names)

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        asked = _content(request)
        place = {"message": asked["kind"], "round": asked["fields"]["round"], "step": asked["fields"]["step"]}
        for site, reply in self._carried(request, sites, timeout):
            words = {"problem": reply.reason} if isinstance(reply, Lost) else _content(reply)["fields"]
            self._seen = self._seen.told(site, words, **place)
            with suppress(FealError):  # a note for people, which nothing depends on
                write_seen(self._place.seen, self._seen)
            yield site, reply

    def _carried(
        self, request: bytes, sites: Sequence[str], timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        link = self._link = self._link or self._connected()
        flights = {site: Flight(site=site) for site in sites}
        began = time.monotonic()
        while flights:
            self._send(link, list(flights.values()), request, timeout)
            for site, landed in self._landed(link, flights):
                del flights[site]
                yield site, landed
            for site, flight in list(flights.items()):
                late = _is_late(flight, timeout)
                if late or self._given_up(site):
                    del flights[site]
                    yield site, out_of_time(site, timeout or 0.0) if late else _absent(site)
            pause = max(PAUSE, WASTE * (time.monotonic() - began))
            time.sleep(min(LONGEST_PAUSE, pause) if flights else 0.0)

    def explain(self, site: str, reason: str) -> str:
        return naming(site, reason)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def _named(self, wanted: Sequence[str] | None) -> list[str]:
        from feal.federation.engines.flower_link import Directory

        self._directory = Directory(self._place)
        known = sorted(node.name for node in self._directory.registered() if node.name)
        if self._directory.insecure:
            known = sorted(self._place.settings.sites)
        for name in wanted or ():
            if name not in known:
                raise unknown(f"site in {self._place.folder}", name, known)
        if not known:
            raise FealError(f"{self._place.folder} knows no site: enter their keys in its coordinator.yaml.")
        return known if wanted is None else sorted(set(wanted))

    def _connected(self) -> Link:
        from feal.federation.engines.flower_link import Link

        assert self._directory is not None
        began = time.monotonic()
        self._away = dict.fromkeys(self._names, began)
        return Link(
            self._directory, lock=self._place.state / ".runs.lock", patience=self._settings.deployment.patience
        )

    def _send(self, link: Link, flights: Sequence[Flight], request: bytes, timeout: float | None) -> None:
        """Give the message to every site that is there and does not have it."""
        from feal.federation.engines.flower_client import Question

        if all(flight.node is not None for flight in flights) and time.monotonic() - self._looked < LOOK:
            return
        nodes = link.nodes()
        self._looked = time.monotonic()
        for flight in flights:
            node = nodes.get(flight.site)
            if node is None:
                self._away.setdefault(flight.site, time.monotonic())
                flight.node = None
                continue
            self._away.pop(flight.site, None)
            if flight.node != node:
                question = Question(site=flight.site, request=request, timeout=timeout or 0.0, run=self._run_id())
                link.forget(flight.number)  # what is half here of its reply was of a SuperNode that is no more
                flight.number, flight.node, flight.since = link.push(node, question), node, time.monotonic()

    def _landed(self, link: Link, flights: dict[str, Flight]) -> list[tuple[str, bytes | Lost]]:
        asked = {flight.number: flight for flight in flights.values() if flight.node is not None}
        landed: list[tuple[str, bytes | Lost]] = []
        for number, reply in link.pull(list(asked)):
            if reply is None or _cut_off(reply):
                asked[number].node = None
            else:
                landed.append((asked[number].site, _result(asked[number].site, reply)))
        return landed

    def _given_up(self, site: str) -> bool:
        since = self._away.get(site)
        return since is not None and time.monotonic() - since > self._settings.deployment.patience

    def _run_id(self) -> str:
        """What sites know this run directory by, also after it was moved."""
        if not self._run.exists():
            write_json(self._run, {"run": secrets.token_hex(16)})
        return str(read_json(self._run)["run"])


def _content(message: bytes) -> dict[str, Any]:
    """A message's kind and fields, without its tensors; nothing where there is no such message."""
    try:
        content = json.loads(metadata_of(message)["message"])
        return {"kind": str(content["kind"]), "fields": dict(content["fields"])}
    except (KeyError, TypeError, ValueError, RecursionError, SafetensorError):
        return {"kind": "", "fields": {"round": 0, "step": 0}}


def _cut_off(reply: Message) -> bool:
    from flwr.common.constant import ErrorCode

    return reply.has_error() and reply.error.code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE)


def _result(site: str, reply: Message) -> bytes | Lost:
    if reply.has_error():
        return Lost(reason=f"Site {site}'s process ended before it answered: its own log says why.")
    from feal.federation.engines.flower_client import UNREADABLE, unpacked

    try:
        return unpacked(reply.content)
    except UNREADABLE:
        return Lost(reason=f"Site {site} sent a reply that cannot be read: is it of the same version?")


def _is_late(flight: Flight, timeout: float | None) -> bool:
    """Whether the time is over of a site that has the message; for others their absence decides."""
    if timeout is None or flight.node is None:
        return False
    return time.monotonic() - flight.since > timeout + GRACE


def _absent(site: str) -> Lost:
    return Lost(reason=f"Site {site} is not connected to the coordinator: start `feal deploy site` there.")


def _check_installed() -> None:
    try:
        import flwr

        del flwr
    except ImportError as error:
        raise FealError("The engine flower needs Flower: install it with `pip install 'feal[flower]'`.") from error
