"""One question to many sites: the usable replies, who was left out and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from feal.errors import FealError
from feal.federation import messages
from feal.federation.engines import Engine, Lost
from feal.federation.progress import Watcher
from feal.federation.spool import Spool
from feal.federation.vetting import plain_words, unexpected, vet

AnyReply = TypeVar("AnyReply", bound=messages.Reply)


@dataclass(frozen=True, kw_only=True)
class Replies(Generic[AnyReply]):
    """What came of a question."""

    good: Mapping[str, AnyReply]
    """By site, in the order of names; weights are read from disk as they are asked for."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites without a usable reply, and why, in a sentence."""
    events: Sequence[Mapping[str, Any]] = ()
    """What the run's log should say about it."""

    def __add__(self, other: Replies[AnyReply]) -> Replies[AnyReply]:
        good = {**self.good, **other.good}
        return Replies(
            good={site: good[site] for site in sorted(good)},
            left_out={**self.left_out, **other.left_out},
            events=[*self.events, *other.events],
        )


class Exchange:
    """Carries requests to sites and looks at every reply before anybody uses it."""

    def __init__(self, *, engine: Engine, spool: Spool, watcher: Watcher, timeout: float | None) -> None:
        self._engine = engine
        self._spool = spool
        self._watcher = watcher
        self._timeout = timeout
        self._said: set[str] = set()

    def ask(
        self,
        request: messages.Request,
        sites: Sequence[str],
        expected: type[AnyReply],
        *,
        doing: str,
        task: str = "",
        classes: int = 0,
    ) -> Replies[AnyReply]:
        """Put a request to sites and gather what they say."""
        request = messages.seal(request)
        good: dict[str, AnyReply] = {}
        left_out: dict[str, str] = {}
        events: list[dict[str, Any]] = []
        for site, data in self._engine.deliver(messages.encode(request), sites, timeout=self._timeout):
            reply, problem = self._look(site, data, request, task, classes)
            loss = reply.loss if isinstance(reply, messages.TrainReply) else None
            self._watcher.answered(round=request.round, step=request.step, site=site, doing=doing, loss=loss)
            place = {"round": request.round, "step": request.step, "message": request.kind, "site": site}
            if problem:
                left_out[site] = problem
                events.append({"event": "left_out", **place, "reason": problem})
                continue
            assert isinstance(reply, expected)
            odd = [plain_words(name) for name in unexpected(reply, request)]
            if odd:
                events.append({"event": "unexpected", **place, "names": odd})
                self.say(f"Site {site} sent what nobody asked for, and it is ignored: {', '.join(odd)}.")
            good[site] = self._spooled(reply, request)
        events.sort(key=lambda event: (event["site"], event["event"]))
        return Replies(good={site: good[site] for site in sorted(good)}, left_out=left_out, events=events)

    def _look(
        self, site: str, data: bytes | Lost, request: messages.Request, task: str, classes: int
    ) -> tuple[messages.Reply | None, str]:
        """A reply and what is wrong with it."""
        if isinstance(data, Lost):
            return None, plain_words(data.reason)
        try:
            reply = messages.decode_reply(data)
        except FealError:
            return None, f"Site {site} sent a reply that cannot be read."
        return reply, plain_words(vet(reply, request, site=site, task=task, classes=classes))

    def _spooled(self, reply: AnyReply, request: messages.Request) -> AnyReply:
        if reply.weights is None:
            return reply
        if request.weights is None or not type(reply).carries_weights:
            return reply.model_copy(update={"weights": None})
        wanted = {name: reply.weights[name] for name in request.weights}
        return reply.model_copy(update={"weights": self._spool.keep(reply.site, wanted)})

    def require(self, replies: Replies[AnyReply], wanted: int) -> Replies[AnyReply]:
        """Say who is left out; fewer than `wanted` usable replies end the run.

        Raises:
            FealError: too few sites answered; it says what was wrong with the first of the others.
        """
        problems = [self._engine.explain(site, why) for site, why in sorted(replies.left_out.items())]
        if len(replies.good) < wanted:
            more = len(problems) - 1
            others = f" ({more} more site{'s' if more > 1 else ''} failed.)" if more > 0 else ""
            raise FealError((problems[0] if problems else "No site can be asked now: resume later.") + others)
        for problem in problems:
            self.say(f"Left out: {problem}")
        return replies

    def say(self, sentence: str) -> None:
        """Tell whoever watches, once."""
        if sentence not in self._said:
            self._said.add(sentence)
            self._watcher.note(sentence)
