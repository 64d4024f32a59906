"""Exchange messages with sites: decide which are asked, validate every reply, keep weights on disk.

The coordinator's memory does not grow with the number of sites: it holds one reply at a time, also in averaging.
"""

from __future__ import annotations

import shutil
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.callbacks import Callback
from feal.federation.coordinator.validation import (
    find_incompatibility,
    find_problem,
    list_unexpected,
    sanitize,
)
from feal.federation.transport.base import DeliveryFailure, Transport
from feal.fileio import read_tensors, write_error
from feal.metrics import Metric, find_metrics
from feal.rng import Address
from feal.rundir.journal import State
from feal.rundir.layout import RunDirectory
from feal.rundir.records import LeftOut, Unexpected
from feal.settings import Settings, ceil_share
from feal.tensors import Tensors

AnyReply = TypeVar("AnyReply", bound=messages.Reply)


@dataclass(frozen=True, kw_only=True)
class Replies(Generic[AnyReply]):
    """The outcome of a request."""

    good: Mapping[str, AnyReply]
    """Usable replies by site, in the order of names; their weights are read from disk on access."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites without a usable reply, and why, in a sentence."""
    events: Sequence[LeftOut | Unexpected] = ()
    """Records for the run's log."""

    def __add__(self, other: Replies[AnyReply]) -> Replies[AnyReply]:
        return Replies(
            good=dict(sorted({**self.good, **other.good}.items())),
            left_out={**self.left_out, **other.left_out},
            events=[*self.events, *other.events],
        )


class Exchange:
    """Send requests to the sites of a run, and validate every reply before it is used.

    Raises:
        FealError: the quorum is larger than the number of sites.
    """

    def __init__(self, settings: Settings, *, transport: Transport, run: RunDirectory, callback: Callback) -> None:
        self.sites = transport.sites()
        if settings.quorum is not None and settings.quorum > len(self.sites):
            raise FealError(
                f"A quorum of {settings.quorum} is more than the {len(self.sites)} sites there are: lower it."
            )
        self.quorum = settings.quorum or len(self.sites)
        """How many sites must reply for a round to count."""
        self.joined: dict[str, messages.JoinReply] = {}
        self._settings = settings
        self._transport = transport
        self._run = run
        self._callback = callback
        self._noted: set[str] = set()

    def join(
        self, request: messages.Join, sites: Sequence[str], *, labels: Mapping[str, int], required: int
    ) -> Replies[messages.JoinReply]:
        """Introduce the run to sites, and admit those that fit the sites that joined before.

        `labels` are the numbers of labels that the run has counted at each site so far.

        Raises:
            FealError: fewer than `required` sites join.
        """
        replies = self.ask(request, sites, messages.JoinReply, doing="joining")
        problems = dict(replies.left_out)
        for site, reply in replies.good.items():
            first = next(iter(self.joined.values()), reply)
            problem = find_incompatibility(reply, first=first, counted=labels.get(site, 0))
            if problem:
                problems[site] = problem
            else:
                self.joined[site] = reply
        self.joined = dict(sorted(self.joined.items()))
        fitting = {site: reply for site, reply in replies.good.items() if site not in problems}
        self.require(Replies(good=fitting, left_out=problems), required)
        return replies

    def ask_all(
        self, request: messages.Request, expected: type[AnyReply], state: State, *, doing: str
    ) -> Replies[AnyReply]:
        """Send a request to every site that is up to date; the quorum must reply."""
        present = self._list_present(state)
        replies = self.ask(request, present, expected, doing=doing, state=state)
        behind = _describe_behind(site for site in self.sites if site not in present)
        return self.require(replies + Replies(good={}, left_out=behind), self.quorum)

    def ask_to_train(
        self, request: messages.Train, state: State, *, is_last: bool, layout: Tensors | None = None
    ) -> Replies[messages.TrainReply]:
        """Have a share of the sites train, all in the last communication round of a round.

        They are asked in a random order, and the next site replaces one that fails. `layout`: as of `ask`.
        """
        address = Address(seed=self._settings.seed, purpose="participation", round=state.round, step=state.step)
        order = torch.randperm(len(self.sites), generator=address.generator()).tolist()
        drawn = [self.sites[index] for index in order]
        share = 1.0 if is_last else self._settings.participation
        wanted = max(1, ceil_share(share, len(self.sites)))
        tolerated = len(self.sites) - self.quorum
        present = set(self._list_present(state))
        waiting = [site for site in drawn if site in present]
        behind = _describe_behind(site for site in drawn[:wanted] if site not in present)
        replies: Replies[messages.TrainReply] = Replies(good={}, left_out=behind)
        while waiting and len(replies.good) < wanted and len(replies.left_out) <= tolerated:
            count = wanted - len(replies.good)
            wave, waiting = sorted(waiting[:count]), waiting[count:]
            replies += self.ask(request, wave, messages.TrainReply, doing="training", state=state, layout=layout)
        return self.require(replies, max(1, wanted - tolerated))

    def ask(
        self,
        request: messages.Request,
        sites: Sequence[str],
        expected: type[AnyReply],
        *,
        doing: str,
        state: State | None = None,
        layout: Tensors | None = None,
    ) -> Replies[AnyReply]:
        """Send a request, with its key, to sites and gather their replies.

        Replies must fit the `state` of the run, which is None before sites have joined. `doing` says what the
        message is for, for the callback. The tensors of a reply have the names, shapes and types of `layout`, by
        default those of the request's weights.
        """
        request = messages.seal(request)
        good: dict[str, AnyReply] = {}
        left_out: dict[str, str] = {}
        events: list[LeftOut | Unexpected] = []
        timeout = self._settings.round_timeout
        metrics = self.metrics(state.task) if state else []
        layout = request.weights if layout is None else layout
        for site, data in self._transport.deliver(messages.encode(request), sites, timeout=timeout):
            reply, problem = self._validate(data, request, site=site, state=state, metrics=metrics, layout=layout)
            loss = reply.loss if isinstance(reply, messages.TrainReply) else None
            self._callback.on_reply(round=request.round, step=request.step, site=site, doing=doing, loss=loss)
            place: dict[str, Any] = {"round": request.round, "step": request.step, "message": request.kind}
            if problem:
                left_out[site] = problem
                events.append(LeftOut(**place, site=site, reason=problem))
                continue
            assert isinstance(reply, expected)
            assert isinstance(data, bytes)
            unexpected = [sanitize(name) for name in list_unexpected(reply, layout)]
            if unexpected:
                events.append(Unexpected(**place, site=site, names=unexpected))
                self.note_once(
                    f"Site {site} sent fields that were not requested; ignored: {', '.join(unexpected)}."
                )
            good[site] = self._store_weights(reply, layout, data)
        events.sort(key=lambda event: (event.site, event.event))
        return Replies(good=dict(sorted(good.items())), left_out=left_out, events=events)

    def require(self, replies: Replies[AnyReply], required: int) -> Replies[AnyReply]:
        """Note which sites are left out; fewer than `required` usable replies end the run.

        Raises:
            FealError: too few sites replied; it says what was wrong with the first of the others.
        """
        problems = [self._transport.explain(site, why) for site, why in sorted(replies.left_out.items())]
        if len(replies.good) < required:
            more = len(problems) - 1
            others = f" ({more} more site{'s' if more > 1 else ''} failed.)" if more > 0 else ""
            raise FealError((problems[0] if problems else "No site can be asked now: resume later.") + others)
        for problem in problems:
            self.note_once(f"Left out: {problem}")
        return replies

    def note_once(self, sentence: str) -> None:
        """Show a note, unless it was shown before."""
        if sentence not in self._noted:
            self._noted.add(sentence)
            self._callback.on_note(sentence)

    def clear(self) -> None:
        """Delete the weights of all replies."""
        shutil.rmtree(self._run.replies, ignore_errors=True)

    def _list_present(self, state: State) -> list[str]:
        """List the sites that have joined and missed no end of a round."""
        return [site for site in self.joined if site not in state.missed]

    def metrics(self, task: str) -> list[Metric]:
        """Return the metrics of the run, with their parameters."""
        return find_metrics(task, self._settings.metrics, self._settings.metric)

    def _validate(
        self,
        data: bytes | DeliveryFailure,
        request: messages.Request,
        *,
        site: str,
        state: State | None,
        metrics: Sequence[Metric],
        layout: Tensors | None,
    ) -> tuple[messages.Reply | None, str]:
        """Decode a reply; return it and what is wrong with it, or an empty string."""
        if isinstance(data, DeliveryFailure):
            return None, sanitize(data.reason)
        try:
            reply = messages.decode_reply(data)
        except FealError:
            return None, f"Site {site} sent a reply that cannot be read."
        problem = find_problem(
            reply,
            request,
            site=site,
            task=state.task if state else "",
            classes=len(state.facts["classes"]) if state else 0,
            metrics=metrics,
            layout=layout,
        )
        return reply, sanitize(problem)

    def _store_weights(self, reply: AnyReply, layout: Tensors | None, data: bytes) -> AnyReply:
        """Move a reply's weights from memory to disk; those that were not requested are never read."""
        if reply.weights is None:
            return reply
        if layout is None or not type(reply).carries_weights:
            return reply.model_copy(update={"weights": None})
        stored = StoredWeights(self._run.replies / reply.site, data, names=layout)
        return reply.model_copy(update={"weights": stored})


def _describe_behind(sites: Iterable[str]) -> dict[str, str]:
    """Return why sites that missed an earlier message cannot be asked."""
    return {site: f"Site {site} has not caught up with the run yet." for site in sites}


class StoredWeights(Mapping[str, torch.Tensor]):
    """Write an encoded reply to a file, and map its weights of these names into memory while they are used."""

    def __init__(self, path: Path, reply: bytes, *, names: Iterable[str]) -> None:
        self._path = path
        self._names = list(names)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(reply)
        except OSError as error:
            raise write_error(path, error) from error

    def items(self) -> ItemsView[str, torch.Tensor]:
        tensors = read_tensors(self._path)
        return {name: tensors[name] for name in self._names}.items()

    def __getitem__(self, name: str) -> torch.Tensor:
        return dict(self.items())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
