"""Reach sites on their own machines through Flower's SuperLink and SuperNodes."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError

from feal.errors import FealError, unknown_name_error
from feal.federation.transport.base import (
    TRANSPORTS,
    Deliveries,
    Delivery,
    DeliveryFailure,
    Transport,
    check_installed,
    prefix_site_name,
)
from feal.federation.transport.deploy.config import read_coordinator_config
from feal.fileio import read_json, write_json
from feal.rundir.layout import RunDirectory
from feal.tensors import read_metadata

if TYPE_CHECKING:
    from flwr.app import Message

    from feal.federation.transport.flower_link import ConnectedNode, FlowerRun, SuperLinkClient

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.1, 1.0
POLL_FRACTION = 0.03
"""The poll interval as a fraction of the time that a message has been pending."""
NODE_REFRESH_SECONDS = 3.0
"""How long sites that have a message are assumed to be still connected."""
MAX_VERSION_CHARACTERS, MAX_PROBLEM_CHARACTERS = 100, 600
TIMEOUT_MARGIN_SECONDS = 60.0
"""Time allowed beyond `timeout`, which the site itself enforces, for the message to travel."""


@dataclass(kw_only=True)
class PendingMessage:
    """A message to a site: assigned to a SuperNode, or waiting for one to connect."""

    site: str
    node: ConnectedNode | None = None
    number: str = ""
    since: float = 0.0
    """When it was assigned to the SuperNode."""


@TRANSPORTS.register("flower", summary="sites on their own machines, by Flower's SuperLink and SuperNodes")
class FlowerDeployment(Transport):
    """Send messages through the coordinator's SuperLink; the registered key of a SuperNode identifies its site.

    A site that lost its connection, or whose SuperNode was restarted, receives the message again: it recognizes
    the message's key and returns the stored reply.
    """

    data_here: ClassVar[bool] = False

    class Params(Transport.Params):
        """The coordinator of a deployment, and how long it waits for sites."""

        coordinator: str | None = Field(
            None, description="the coordinator's folder, as `feal deploy init` writes it"
        )
        patience: float = Field(
            60.0, ge=0, description="seconds that a site may be disconnected before the run continues without it"
        )

    def __init__(
        self, params: Params, *, data: Path, folder: Path, sites: Sequence[str] | None, threads: int
    ) -> None:
        del data, threads
        check_installed("flower", "flwr")
        if params.coordinator is None:
            raise FealError(
                "transport=flower needs the coordinator's folder: name it as transport.coordinator=FOLDER "
                "(`feal deploy init` writes one)."
            )
        self._config = read_coordinator_config(Path(params.coordinator))
        self._params = params
        self._run_id_file = RunDirectory(folder.parent).deployment
        self._superlink: SuperLinkClient | None = None
        self._flower_run: FlowerRun | None = None
        self._away_since: dict[str, float] = {}
        self._refreshed = 0.0
        self._status = StatusFile(run=str(folder.parent.absolute()), sites={})
        self._names = self._find_sites(sites)

    def sites(self) -> list[str]:
        return list(self._names)

    def deliver(self, request: bytes, sites: Sequence[str], *, timeout: float | None) -> Deliveries:
        header = _decode_header(request)
        fields = header["fields"]
        place = {"message": header["kind"], "round": fields["round"], "step": fields["step"]}
        for site, reply in self._exchange(request, sites, timeout):
            if isinstance(reply, DeliveryFailure):
                content = {"problem": reply.reason}
            else:
                content = _decode_header(reply)["fields"]
            self._status = self._status.with_reply(site, content, **place)
            with suppress(FealError):  # only `feal deploy status` reads it
                write_site_status(self._config.status_file, self._status)
            yield site, reply

    def explain(self, site: str, reason: str) -> str:
        return prefix_site_name(site, reason)

    def close(self) -> None:
        if self._flower_run is not None:
            self._flower_run.close()
            self._flower_run = None
        if self._superlink is not None:
            self._superlink.close()
            self._superlink = None

    def _exchange(self, request: bytes, sites: Sequence[str], timeout: float | None) -> Deliveries:
        run = self._flower_run = self._flower_run or self._start_flower_run()
        pending = {site: PendingMessage(site=site) for site in sites}
        began = time.monotonic()
        while pending:
            self._send(run, list(pending.values()), request, timeout)
            for site, reply in self._collect_replies(run, pending):
                del pending[site]
                yield site, reply
            for site, message in list(pending.items()):
                away = self._away_since.get(site)
                if _is_late(message, timeout):
                    del pending[site]
                    yield site, DeliveryFailure.from_timeout(site, timeout or 0.0)
                elif away is not None and time.monotonic() - away > self._params.patience:
                    del pending[site]
                    reason = f"Site {site} is not connected to the coordinator: start `feal deploy site` there."
                    yield site, DeliveryFailure(reason=reason)
            pause = max(MIN_POLL_SECONDS, POLL_FRACTION * (time.monotonic() - began))
            time.sleep(min(MAX_POLL_SECONDS, pause) if pending else 0.0)

    def _find_sites(self, wanted: Sequence[str] | None) -> list[str]:
        from feal.federation.transport.flower_link import SuperLinkClient

        self._superlink = SuperLinkClient(self._config)
        known = sorted(node.name for node in self._superlink.list_nodes() if node.name)
        if self._superlink.insecure:
            known = sorted(self._config.settings.sites)
        for name in wanted or ():
            if name not in known:
                raise unknown_name_error(f"site in {self._config.folder}", name, known)
        if not known:
            raise FealError(f"{self._config.folder} has no registered site: enter their keys in coordinator.yaml.")
        return known if wanted is None else sorted(set(wanted))

    def _start_flower_run(self) -> FlowerRun:
        from feal.federation.transport.flower_link import FlowerRun

        assert self._superlink is not None
        self._away_since = dict.fromkeys(self._names, time.monotonic())
        lock = self._config.state / ".runs.lock"
        return FlowerRun(self._superlink, lock=lock, patience=self._params.patience)

    def _send(
        self, run: FlowerRun, messages: Sequence[PendingMessage], request: bytes, timeout: float | None
    ) -> None:
        """Send the request to every connected site that does not have it yet."""
        from feal.federation.transport.flower_messages import Envelope

        recent = time.monotonic() - self._refreshed < NODE_REFRESH_SECONDS
        if recent and all(message.node is not None for message in messages):
            return
        nodes = run.list_connected_nodes()
        self._refreshed = time.monotonic()
        for message in messages:
            node = nodes.get(message.site)
            if node is None:
                self._away_since.setdefault(message.site, time.monotonic())
                message.node = None
                continue
            self._away_since.pop(message.site, None)
            if message.node != node:
                envelope = Envelope(
                    site=message.site, request=request, timeout=timeout or 0.0, run=self._read_run_id()
                )
                run.forget(message.number)  # a partial reply came from a SuperNode that no longer exists
                message.number, message.node, message.since = run.push(node, envelope), node, time.monotonic()

    def _collect_replies(self, run: FlowerRun, pending: dict[str, PendingMessage]) -> list[tuple[str, Delivery]]:
        by_number = {message.number: message for message in pending.values() if message.node is not None}
        replies: list[tuple[str, Delivery]] = []
        for number, reply in run.pull(list(by_number)):
            if reply is None or _is_undelivered(reply):
                by_number[number].node = None
            else:
                replies.append((by_number[number].site, _unpack_result(by_number[number].site, reply)))
        return replies

    def _read_run_id(self) -> str:
        """Return the id by which sites know this run directory, even after it was moved."""
        if not self._run_id_file.exists():
            write_json(self._run_id_file, {"run": secrets.token_hex(16)})
        return str(read_json(self._run_id_file)["run"])


def _decode_header(message: bytes) -> dict[str, Any]:
    """Return a message's kind and fields without its tensors; empty ones if it cannot be decoded."""
    try:
        content = json.loads(read_metadata(message)["message"])
        return {"kind": str(content["kind"]), "fields": dict(content["fields"])}
    except (KeyError, TypeError, ValueError, RecursionError, SafetensorError):
        return {"kind": "", "fields": {"round": 0, "step": 0}}


def _is_undelivered(reply: Message) -> bool:
    from flwr.common.constant import ErrorCode

    return reply.has_error() and reply.error.code in (ErrorCode.NODE_UNAVAILABLE, ErrorCode.MESSAGE_UNAVAILABLE)


def _unpack_result(site: str, reply: Message) -> Delivery:
    if reply.has_error():
        return DeliveryFailure(reason=f"Site {site}'s process ended before it answered: see the log at the site.")
    from feal.federation.transport.flower_messages import DECODE_ERRORS, unpack_reply

    try:
        return unpack_reply(reply.content)
    except DECODE_ERRORS:
        return DeliveryFailure(
            reason=f"Site {site} sent an unreadable reply: install the same version of feal everywhere."
        )


def _is_late(message: PendingMessage, timeout: float | None) -> bool:
    """Return whether a connected site exceeded its time; `patience` decides for the others."""
    if timeout is None or message.node is None:
        return False
    return time.monotonic() - message.since > timeout + TIMEOUT_MARGIN_SECONDS


class SiteStatus(BaseModel, frozen=True):
    """The content of a site's last reply."""

    at: str = ""
    """Time of the reply, in UTC."""
    version: str = ""
    message: str = ""
    """Kind of the last request."""
    round: int = 0
    step: int = 0
    labelled: int | None = None
    pending: int | None = None
    problem: str = ""
    """Why the last reply is missing, if it is."""


class StatusFile(BaseModel, frozen=True):
    """The status of the sites in the most recent run, stored beside the SuperLink for `feal deploy status`."""

    run: str
    sites: dict[str, SiteStatus]

    def with_reply(
        self, site: str, content: Mapping[str, Any], *, message: str, round: int, step: int
    ) -> StatusFile:
        """Return the status updated with a reply's fields, or with the `problem` that prevented a reply."""
        problem = str(content.get("problem") or content.get("reason") or "")[:MAX_PROBLEM_CHARACTERS]
        changes = {"message": message, "round": round, "step": step, "problem": problem}
        if "problem" not in content:
            changes["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        before = self.sites.get(site, SiteStatus())
        status = before.model_copy(update={**_extract_fields(content), **changes})
        return self.model_copy(update={"sites": {**self.sites, site: status}})


def _extract_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid status fields of an unvalidated reply; a failed reply has none."""
    if content.get("status", "ok") != "ok":
        return {}
    version = content.get("version")
    counts = {name: content.get(name) for name in ("labelled", "pending")}
    return {
        **({"version": version[:MAX_VERSION_CHARACTERS]} if isinstance(version, str) else {}),
        **{name: count for name, count in counts.items() if type(count) is int},
    }


def read_site_status(path: Path) -> StatusFile | None:
    """Read the status file; None if there is none."""
    if not path.exists():
        return None
    try:
        return StatusFile.model_validate(read_json(path))
    except ValidationError as error:
        raise FealError(f"{path} cannot be read: remove it; the next message writes a new one.") from error


def write_site_status(path: Path, status: StatusFile) -> None:
    """Write the status file."""
    write_json(path, status.model_dump())
