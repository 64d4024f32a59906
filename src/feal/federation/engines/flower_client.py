"""The sites' end of a Flower simulation: what an actor does with one message."""

from __future__ import annotations

import contextlib
import faulthandler
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
STANDARD_ERROR = 2


@dataclass(frozen=True, kw_only=True)
class Client:
    """Answers for whichever site a message names: an actor serves any of them and remembers none."""

    answer: Answer
    data: Path
    folder: Path

    def __call__(self, message: Message, context: Context) -> Message:
        del context
        asked = cast(ConfigRecord, message.content[RECORD])
        name, request = str(asked["site"]), cast(bytes, asked["request"])
        with _ending_after(cast(float, asked["timeout"])):
            reply = self._reply(name, request)
        return Message(RecordDict({RECORD: reply}), reply_to=message)

    def _reply(self, name: str, request: bytes) -> ConfigRecord:
        try:
            return packed(self.answer(name, request, data=self.data, folder=self.folder))
        except BaseException as error:  # Ray would take a SystemExit for the wish to have no actor any more
            kind = type(error).__name__
            with contextlib.suppress(FealError):
                write_text(self.folder / name / "problem.txt", f"Site {name} failed with {kind}: {error}\n")
            return packed(Lost(reason=f"Site {name} failed with {kind}: its own problem.txt says why."))


def question(site: str, request: bytes, *, timeout: float | None, run: str = "") -> RecordDict:
    """What a message to a client holds; `run` tells a deployed site which of its folders is meant."""
    asked = ConfigRecord({"site": site, "run": run, "request": request, "timeout": timeout or 0.0})
    return RecordDict({RECORD: asked})


def packed(reply: bytes | Lost) -> ConfigRecord:
    """What a client's message holds."""
    return ConfigRecord({"lost": reply.reason} if isinstance(reply, Lost) else {"reply": reply})


def unpacked(content: RecordDict) -> bytes | Lost:
    """What a client's message held."""
    reply = cast(ConfigRecord, content[RECORD])
    return cast(bytes, reply["reply"]) if "reply" in reply else Lost(reason=str(reply["lost"]))


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
