"""The sites' end of a Flower simulation: what an actor does with one message."""

from __future__ import annotations

import contextlib
import faulthandler
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from flwr.app import ConfigRecord, Context, Message, RecordDict

from feal.errors import FealError
from feal.federation.engines.contract import Lost
from feal.files import write_text

Answer = Callable[..., bytes]
RECORD = "feal"
PART = "part-"
PART_BYTES = 4 * 2**20
"""Flower carries a message's records one by one and gives each three minutes: the slowest line must manage one."""
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
"""What comes of records that are not those of a `Question` or a reply."""
STANDARD_ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Client:
    """Answers for whichever site a message names: an actor serves any of them and remembers none."""

    answer: Answer
    data: Path
    folder: Path

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        asked = Question.of(message.content)
        with _ending_after(asked.timeout):
            reply = self._reply(asked.site, asked.request)
        return Message(reply, reply_to=message)

    def _reply(self, name: str, request: bytes) -> RecordDict:
        try:
            return packed(self.answer(name, request, data=self.data, folder=self.folder))
        except BaseException as error:  # Ray would take a SystemExit for the wish to have no actor any more
            kind = type(error).__name__
            with contextlib.suppress(FealError):
                write_text(self.folder / name / "problem.txt", f"Site {name} failed with {kind}: {error}\n")
            return packed(Lost(reason=f"Site {name} failed with {kind}: its own problem.txt says why."))


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a message to a client holds; `run` tells a deployed site which of its folders is meant."""

    site: str
    request: bytes
    timeout: float = 0.0
    """Seconds that the answer may take; 0 is for ever."""
    run: str = ""

    def packed(self) -> RecordDict:
        """As Flower carries it."""
        # Flower gives a whole number back as one, and who waits wants seconds.
        asked = ConfigRecord({"site": self.site, "run": self.run, "timeout": float(self.timeout)})
        return _records(asked, self.request)

    @staticmethod
    def of(content: RecordDict) -> Question:
        """What a message held."""
        asked = cast(ConfigRecord, content[RECORD])
        return Question(
            site=str(asked["site"]),
            run=str(asked["run"]),
            timeout=cast(float, asked["timeout"]),
            request=_joined(content),
        )


def packed(reply: bytes | Lost) -> RecordDict:
    """What a client's message holds."""
    if isinstance(reply, Lost):
        return _records(ConfigRecord({"lost": reply.reason}), b"")
    return _records(ConfigRecord(), reply)


def unpacked(content: RecordDict) -> bytes | Lost:
    """What a client's message held."""
    reply = cast(ConfigRecord, content[RECORD])
    return Lost(reason=str(reply["lost"])) if "lost" in reply else _joined(content)


def _records(head: ConfigRecord, content: bytes) -> RecordDict:
    """A message's records: its head, and the content in pieces that any line can carry.

    Each of them is like no other: Flower keeps what is alike once, and lets go of it with the first message.
    """
    head["mark"] = mark = secrets.token_hex(8)
    records = RecordDict({RECORD: head})
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        piece = content[start : start + PART_BYTES]
        records[f"{PART}{number:06}"] = ConfigRecord({"mark": mark, "number": number, "content": piece})
    return records


def _joined(content: RecordDict) -> bytes:
    names = sorted(name for name in content if name.startswith(PART))
    return b"".join(cast(bytes, cast(ConfigRecord, content[name])["content"]) for name in names)


@contextmanager
def _ending_after(timeout: float) -> Iterator[None]:
    """End this process when the time is over, whatever it hangs in; Ray then puts another in its place."""
    if not timeout:
        yield
        return
    faulthandler.dump_traceback_later(timeout, exit=True, file=STANDARD_ERROR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
