"""The loop: rounds of broadcast, local training and averaging, and a question for labels between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import torch

from feal.classes import source_digest
from feal.errors import FealError
from feal.federation import messages
from feal.federation.admission import check_images
from feal.federation.engines import Engine
from feal.federation.exchange import Exchange, Replies
from feal.federation.journal import Closing, Journal, State, Weights
from feal.federation.networks import EARLIER
from feal.federation.progress import Watcher
from feal.federation.querying import roles_of
from feal.federation.reporting import (
    add_seconds,
    edited_note,
    evidence_notes,
    opening_notes,
    round_record,
    stand_in_notes,
)
from feal.federation.spool import Spool
from feal.federation.statistics import metrics
from feal.federation.tally import (
    Labelling,
    at_least,
    averaged,
    counted,
    enough_answered,
    missed_in_order,
    total_counts,
)
from feal.federation.vetting import unfit
from feal.models import starting_model
from feal.randomness import Address
from feal.selection import strategy_named
from feal.settings import Settings
from feal.version import VERSION

AnyReply = TypeVar("AnyReply", bound=messages.Reply)


class Coordinator:
    """Drives one run from where its journal stands to its end, knowing sites only by their messages."""

    def __init__(self, settings: Settings, *, engine: Engine, journal: Journal, watcher: Watcher) -> None:
        self._settings = settings
        self._journal = journal
        self._watcher = watcher
        self._spool = Spool(journal.folder / "spool")
        self._exchange = Exchange(
            engine=engine, spool=self._spool, watcher=watcher, timeout=settings.round_timeout
        )
        self._sites = engine.sites()
        self._joined: dict[str, messages.JoinReply] = {}
        self._run = settings.identity()
        self._unlogged: list[Mapping[str, Any]] = []

    def begin(self) -> State:
        """Commit the start of a run: the sites fit together, and the initial weights are drawn."""
        self.join()
        if self._settings.initial == "given" and not any(reply.given for reply in self._joined.values()):
            raise FealError("No site has a label to begin with: give some, or begin with initial=random.")
        first = next(iter(self._joined.values()))
        check_images(self._settings, first)
        Address(seed=self._settings.seed, purpose="initial weights").seed_torch()
        network = starting_model(
            self._settings,
            task=first.task,
            classes=len(first.classes),
            channels=first.channels,
            height=first.height,
            width=first.width,
        ).cut(self._settings.training.trainable)
        facts = first.model_dump(include={"classes", "channels", "height", "width", "dtype", "fitting"})
        state = State(configuration=self._settings.dump(), task=first.task, facts=facts)
        return self._journal.begin(state, network.state_dict())

    def join(self, state: State | None = None) -> None:
        """Introduce the run to every site and check that they fit together.

        Raises:
            FealError: too few sites are there and fit.
        """
        quorum = self._settings.quorum
        if quorum is not None and quorum > len(self._sites):
            raise FealError(f"A quorum of {quorum} is more than the {len(self._sites)} sites there are: lower it.")
        self._admit(self._sites, state, wanted=self._wanted())

    def proceed(self, state: State) -> Iterator[State]:
        """Go on until the run is finished, giving every state that was committed.

        A run that waits for labels gives a `waiting` state for every look that did not find enough of them; to
        go on is to look again.
        """
        self._spool.clear()
        self.join(state)
        state = self._reopened(state)
        self._watcher.joined(self._joined, round=state.round, step=state.step)
        if state.stage == "close" and state.round == 0:
            self._say(opening_notes(self._settings, self._joined))
        state = self._with_strategy(state)
        if state.stage == "finished":
            yield self._late(state)
        while state.stage != "finished":
            state = self._caught_up(state)
            state = {"train": self._train, "close": self._close, "waiting": self._collect}[state.stage](state)
            # Looked at once more after a round was closed: after a kill answers may lie there already.
            if state.stage != "waiting" or state.polls:
                yield state

    def _reopened(self, state: State) -> State:
        """A finished run whose rounds were raised goes back to the end of its last round, now to ask."""
        if state.stage != "finished" or state.round >= self._settings.rounds:
            return state
        # Committed at once: the log is about to be written over from there on.
        return self._journal.commit(replace(state, stage="close", log_bytes=state.round_bytes))

    def _admit(self, sites: Sequence[str], state: State | None, *, wanted: int) -> None:
        # Where the coordinator's folder is, is no site's business.
        told = {name: value for name, value in self._settings.dump().items() if name != "deployment"}
        request = messages.Join(run=self._run, configuration=told, version=VERSION)
        replies = self._exchange.ask(request, sites, messages.JoinReply, doing="joining")
        self._unlogged += replies.events
        fitting: dict[str, messages.JoinReply] = {}
        left_out = dict(replies.left_out)
        for site, reply in replies.good.items():
            first = next(iter({**self._joined, **fitting}.values()), reply)
            problem = unfit(reply, first=first, counted=state.labels.get(site, 0) if state is not None else 0)
            if problem:
                left_out[site] = problem
            else:
                fitting[site] = reply
        self._exchange.require(Replies(good=fitting, left_out=left_out), wanted)
        self._joined = dict(sorted({**self._joined, **fitting}.items()))

    def _train(self, state: State) -> State:
        last = state.step + 1 == self._settings.communication_rounds
        every = self._settings.evaluate_every
        weights = self._journal.weights(state, state.current)
        request = messages.Train(
            run=self._run,
            round=state.round,
            step=state.step,
            weights=weights,
            class_counts=state.round_counts,
            evaluate=bool(every) and state.step > 0 and state.step % every == 0,
        )
        order = self._order(state)
        replies = self._trained(request, state, order=order, wanted=len(order) if last else self._share(order))
        average = averaged(weights, replies.good)
        losses = {site: reply.loss for site, reply in replies.good.items()}
        event: dict[str, Any] = {"event": "step", "round": state.round, "step": state.step, "loss": losses}
        event["seconds"] = add_seconds({}, replies.good)
        if request.evaluate:
            by_site = {site: reply.statistics for site, reply in replies.good.items()}
            event["metrics"] = metrics(state.task, by_site)
        name = f"round-{state.round:03}" + ("" if last else f"-step-{state.step + 1:03}")
        after = replace(
            counted(state, replies),
            stage="close" if last else "train",
            step=state.step + 1,
            trained={**state.trained, **{site: reply.labelled for site, reply in replies.good.items()}},
            seconds=add_seconds(state.seconds, replies.good),
        )
        committed = self._commit(after, weights=(name, average), events=[*replies.events, event])
        self._spool.clear()
        self._watcher.stepped(round=state.round, step=state.step, losses=losses)
        return committed

    def _close(self, state: State) -> State:
        closing = Closing(
            round=state.round,
            class_counts=state.round_counts,
            ask=state.round < self._settings.rounds,
        )
        doing = "selecting" if closing.ask else "evaluating"
        request = self._request(state, closing)
        replies = self._ask(request, messages.CloseRoundReply, state, doing=doing)
        after = counted(state, replies)
        record = round_record(after, replies.good) if state.round else None
        notes = evidence_notes(state.round, replies.good) if self._settings.loss == "evidential" else []
        notes += stand_in_notes(state.round, replies.good)
        events = [
            *replies.events,
            *([record] if record else []),
            *({"event": "note", "note": note} for note in notes),
        ]
        missed = {site: (*state.missed.get(site, ()), closing) for site in self._sites if site not in replies.good}
        # What a record has counted is not counted again; that of the last round may be written anew.
        left_out = after.left_out if not state.round else {} if closing.ask else state.left_out
        after = replace(after, round_bytes=state.log_bytes, missed=missed, left_out=left_out)
        enough = not closing.ask or self._enough(replies.good)
        committed = self._commit(self._next(after, enough=enough), events=events)
        for note in notes:
            self._watcher.note(note)
        if record is not None:
            self._watcher.closed(record)
        self._say_refusals(replies.good)
        return committed

    def _next(self, state: State, *, enough: bool) -> State:
        """After a round is closed: wait for its labels, begin the next, or be finished."""
        if not enough:
            return replace(state, stage="waiting")
        if state.round >= self._settings.rounds:
            return replace(state, stage="finished")
        anew = self._settings.restart or state.round == 0
        current = "initial" if anew else state.current
        return replace(
            state,
            stage="train",
            round=state.round + 1,
            step=0,
            polls=0,
            current=current,
            seconds={},
            round_counts=total_counts(state),
            trained=dict(state.labels),
        )

    def _request(self, state: State, closing: Closing) -> messages.CloseRound:
        weights: Weights | None = None
        if closing.round:
            weights = self._journal.weights(state, f"round-{closing.round:03}")
        elif EARLIER & roles_of(self._settings):
            weights = self._journal.weights(state, "initial")
        return messages.CloseRound(run=self._run, weights=weights, **asdict(closing))

    def _caught_up(self, state: State) -> State:
        """A site that was absent joins, and gets each end of a round that it missed, before any other message."""
        absent = [site for site in self._sites if site not in self._joined]
        if absent:
            self._admit(absent, state, wanted=0)
        for closing in missed_in_order(state.missed):
            behind = [site for site, missed in state.missed.items() if missed and missed[0] == closing]
            replies = self._exchange.ask(
                self._request(state, closing),
                [site for site in behind if site in self._joined],
                messages.CloseRoundReply,
                doing="catching up",
                task=state.task,
                classes=self._classes(state),
            )
            self._exchange.require(replies, 0)
            self._unlogged += replies.events
            if not replies.good:
                continue
            left = {
                site: entries[1:] if site in replies.good else entries for site, entries in state.missed.items()
            }
            missed = {site: entries for site, entries in left.items() if entries}
            # Who is still away is counted when the message that is due now is sent.
            state = self._commit(replace(counted(state, Replies(good=replies.good)), missed=missed))
        return state

    def _collect(self, state: State) -> State:
        replies = self._ask(self._labels_request(state), messages.LabelsReply, state, doing="collecting labels")
        after = replace(counted(state, replies), polls=state.polls + 1)
        enough = self._enough(replies.good)
        committed = self._commit(self._next(after, enough=enough), events=replies.events)
        self._say_refusals(replies.good)
        self._watcher.collected(replies.good, round=state.round + 1, enough=enough)
        return committed

    def _late(self, state: State) -> State:
        """Take in answers that came after a run was finished: they count once it is extended."""
        replies = self._ask(self._labels_request(state), messages.LabelsReply, state, doing="collecting labels")
        self._say_refusals(replies.good)
        after = counted(state, Replies(good=replies.good))
        if after.labels != state.labels or after.class_counts != state.class_counts:
            self._watcher.note("Answers came since the run was finished; they count once it is extended.")
        return self._commit(after)

    def _labels_request(self, state: State) -> messages.Labels:
        return messages.Labels(run=self._run, round=state.round, step=state.polls + 1)

    def _say_refusals(self, replies: Mapping[str, Labelling]) -> None:
        for site, reply in replies.items():
            if reply.refused:
                self._exchange.say(
                    f"Site {site} refused {reply.refused} answer{'s' if reply.refused > 1 else ''}: "
                    "its annotation/refused.csv says which and why."
                )

    def _enough(self, replies: Mapping[str, Labelling]) -> bool:
        """Whether as many sites as the quorum wants have as many answers as `annotation.min_share` wants."""
        return enough_answered(replies, share=self._settings.annotation.min_share, sites=self._wanted())

    def _wanted(self) -> int:
        return self._settings.quorum or len(self._sites)

    def _ask(
        self, request: messages.Request, expected: type[AnyReply], state: State, *, doing: str
    ) -> Replies[AnyReply]:
        """Put a request to every site that can take it; the quorum must answer."""
        present = self._present(state)
        replies = self._exchange.ask(
            request, present, expected, doing=doing, task=state.task, classes=self._classes(state)
        )
        return self._exchange.require(replies + self._absent(self._sites, present), self._wanted())

    def _trained(
        self, request: messages.Train, state: State, *, order: Sequence[str], wanted: int
    ) -> Replies[messages.TrainReply]:
        """Have as many sites train as are wanted, in the order drawn; the next stands in for one that fails."""
        tolerated = len(self._sites) - self._wanted()
        needed = max(1, wanted - tolerated)
        present = [site for site in order if site in self._present(state)]
        replies: Replies[messages.TrainReply] = self._absent(order[:wanted], present)
        while present and len(replies.good) < wanted and len(replies.left_out) <= tolerated:
            count = wanted - len(replies.good)
            wave, present = sorted(present[:count]), present[count:]
            replies += self._exchange.ask(
                request,
                wave,
                messages.TrainReply,
                doing="training",
                task=state.task,
                classes=self._classes(state),
            )
        return self._exchange.require(replies, needed)

    def _present(self, state: State) -> list[str]:
        """Sites that have joined and missed no end of a round."""
        return [site for site in self._sites if site in self._joined and site not in state.missed]

    def _absent(self, sites: Sequence[str], present: Sequence[str]) -> Replies[Any]:
        absent = {
            site: f"Site {site} has not caught up with the run yet." for site in sites if site not in present
        }
        return Replies(good={}, left_out=absent)

    def _classes(self, state: State) -> int:
        return len(state.facts["classes"])

    def _order(self, state: State) -> list[str]:
        """All sites in the order in which they are drawn for a communication round."""
        address = Address(seed=self._settings.seed, purpose="participation", round=state.round, step=state.step)
        drawn = torch.randperm(len(self._sites), generator=address.generator())
        return [self._sites[index] for index in drawn.tolist()]

    def _share(self, sites: Sequence[str]) -> int:
        return max(1, at_least(self._settings.participation, len(sites)))

    def _commit(
        self,
        state: State,
        *,
        weights: tuple[str, Weights] | None = None,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> State:
        """Commit with whatever has happened on the way and is not in the log yet."""
        unlogged, self._unlogged = self._unlogged, []
        return self._journal.commit(state, weights=weights, events=[*unlogged, *events])

    def _with_strategy(self, state: State) -> State:
        """Note the file of a strategy of one's own as it is now, and say so where it was another before."""
        digest = source_digest(strategy_named(self._settings.strategy))
        if state.strategy_sha256 and digest != state.strategy_sha256:
            self._say([edited_note(self._settings.strategy, round_=state.round)])
        return replace(state, strategy_sha256=digest)

    def _say(self, notes: Sequence[str]) -> None:
        """Tell people, now, and the log with the next commit."""
        for note in notes:
            self._watcher.note(note)
        self._unlogged += [{"event": "note", "note": note} for note in notes]
