"""Pack messages into Flower's records, and answer them in an actor of a Flower simulation."""

from __future__ import annotations

import contextlib
import faulthandler
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from flwr.app import ConfigRecord, Context, Message, RecordDict

from feal.errors import FealError
from feal.federation.transport.base import DeliveryFailure, RequestHandler
from feal.fileio import write_text
from feal.rundir.layout import SiteDirectory

RECORD = "feal"
PART = "part-"
PART_BYTES = 4 * 2**20
"""Flower sends the records of a message one by one with a timeout of three minutes each, on any connection."""
MESSAGE_TYPE = "query"
MESSAGE_TTL_SECONDS = 365 * 24 * 3600.0
DECODE_ERRORS = (KeyError, TypeError, ValueError, AttributeError)
"""Raised when records are unpacked that hold neither an `Envelope` nor a reply."""
STDERR_DESCRIPTOR = 2


@dataclass(frozen=True, kw_only=True)
class SimulationClient:
    """Answer for the site that a message names; an actor serves any site and keeps no state."""

    handler: RequestHandler
    data: Path
    folder: Path

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        envelope = Envelope.unpack(message.content)
        with _exit_after(envelope.timeout):
            reply = self._answer(envelope.site, envelope.request)
        return Message(reply, reply_to=message)

    def _answer(self, name: str, request: bytes) -> RecordDict:
        try:
            return pack_reply(self.handler(name, request, data=self.data, folder=self.folder))
        except BaseException as error:  # Ray would end the actor for good on a SystemExit
            kind = type(error).__name__
            with contextlib.suppress(FealError):
                write_text(SiteDirectory(self.folder / name).problem, f"Site {name} failed with {kind}: {error}\n")
            reason = f"Site {name} failed with {kind}: see problem.txt in its directory."
            return pack_reply(DeliveryFailure(reason=reason))


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A request with its address; `run` tells a deployed site which of its run directories is meant."""

    site: str
    request: bytes
    timeout: float = 0.0
    """Seconds that the site may take; 0 means no limit."""
    run: str = ""

    def pack(self) -> RecordDict:
        """Return the records that Flower sends."""
        # Flower returns a whole number as an int, and the receiver expects a float.
        head = ConfigRecord({"site": self.site, "run": self.run, "timeout": float(self.timeout)})
        return _build_records(head, self.request)

    @staticmethod
    def unpack(content: RecordDict) -> Envelope:
        """Read an envelope from a message's records."""
        head = cast(ConfigRecord, content[RECORD])
        return Envelope(
            site=str(head["site"]),
            run=str(head["run"]),
            timeout=cast(float, head["timeout"]),
            request=_join_parts(content),
        )


def pack_reply(reply: bytes | DeliveryFailure) -> RecordDict:
    """Return the records of a reply."""
    if isinstance(reply, DeliveryFailure):
        return _build_records(ConfigRecord({"lost": reply.reason}), b"")
    return _build_records(ConfigRecord(), reply)


def unpack_reply(content: RecordDict) -> bytes | DeliveryFailure:
    """Read a reply from a message's records."""
    head = cast(ConfigRecord, content[RECORD])
    return DeliveryFailure(reason=str(head["lost"])) if "lost" in head else _join_parts(content)


def _build_records(head: ConfigRecord, content: bytes) -> RecordDict:
    """Build a message's records: its head, and the content in parts.

    Every record carries a random mark: Flower stores equal records once and deletes them with the first message.
    """
    head["mark"] = mark = secrets.token_hex(8)
    records = RecordDict({RECORD: head})
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        part = content[start : start + PART_BYTES]
        records[f"{PART}{number:06}"] = ConfigRecord({"mark": mark, "number": number, "content": part})
    return records


def _join_parts(content: RecordDict) -> bytes:
    names = sorted(name for name in content if name.startswith(PART))
    return b"".join(cast(bytes, cast(ConfigRecord, content[name])["content"]) for name in names)


@contextmanager
def _exit_after(timeout: float) -> Iterator[None]:
    """Exit this process when the time is up, wherever it hangs; Ray then replaces it."""
    if not timeout:
        yield
        return
    faulthandler.dump_traceback_later(timeout, exit=True, file=STDERR_DESCRIPTOR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
