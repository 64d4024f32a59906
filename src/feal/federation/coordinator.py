"""The loop: rounds of broadcast, local training and averaging, and a question for labels between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import torch

from feal.errors import FealError
from feal.federation import messages
from feal.federation.aggregation import fedavg
from feal.federation.engines import Engine
from feal.federation.journal import Closing, Journal, State, Weights
from feal.federation.progress import Watcher
from feal.federation.querying import label_limit
from feal.federation.statistics import diagnostics, metrics
from feal.models import build_model
from feal.randomness import Address
from feal.settings import Settings
from feal.version import VERSION

AnyReply = TypeVar("AnyReply", bound=messages.Reply)


class Coordinator:
    """Drives one run from where its journal stands to its end, knowing sites only by their messages."""

    def __init__(self, settings: Settings, *, engine: Engine, journal: Journal, watcher: Watcher) -> None:
        self._settings = settings
        self._engine = engine
        self._journal = journal
        self._watcher = watcher
        self._sites = engine.sites()
        self._run = settings.identity()
        self._task = ""
        self._said: set[str] = set()

    def begin(self) -> State:
        """Commit the start of a run: the sites fit together, and the initial weights are drawn."""
        replies = self.join()
        if self._settings.initial == "given" and not any(reply.given for reply in replies.values()):
            raise FealError("No site has a label to begin with: give some, or begin with initial=random.")
        first = next(iter(replies.values()))
        Address(seed=self._settings.seed, purpose="initial weights").seed_torch()
        network = build_model(
            self._settings.model,
            task=first.task,
            classes=len(first.classes),
            channels=first.channels,
            height=first.height,
            width=first.width,
        )
        state = State(configuration=self._settings.dump(), task=first.task)
        return self._journal.begin(state, network.state_dict())

    def join(self) -> dict[str, messages.JoinReply]:
        """Introduce the run to every site and check that they fit together."""
        quorum = self._settings.quorum
        if quorum is not None and quorum > len(self._sites):
            raise FealError(f"A quorum of {quorum} is more than the {len(self._sites)} sites there are: lower it.")
        request = messages.Join(run=self._run, configuration=self._settings.dump(), version=VERSION)
        replies = self._ask(request, self._sites, messages.JoinReply, doing="joining")
        first = next(iter(replies.values()))
        for site, reply in replies.items():
            if _kind(reply) != _kind(first):
                raise FealError(
                    f"Sites {first.site} and {site} differ in task, classes or image size: prepare them alike."
                )
        self._task = first.task
        return replies

    def proceed(self, state: State) -> Iterator[State]:
        """Go on until the run is finished or waits for labels, giving every state that was committed."""
        replies = self.join()
        self._check_labels_are_there(state, replies)
        state = self._reopened(state)
        self._watcher.joined(replies, round=state.round, step=state.step)
        if state.stage == "close" and state.round == 0:
            self._warn_of_small_pools(replies)
        if state.stage == "waiting":
            state = self._collect(state)
            yield state
        while state.stage in ("train", "close"):
            state = self._train(state) if state.stage == "train" else self._close(state)
            yield state

    def _reopened(self, state: State) -> State:
        """A finished run whose rounds were raised goes back to the end of its last round, now to ask."""
        if state.stage != "finished" or state.round >= self._settings.rounds:
            return state
        # Committed at once: the log is about to be written over from there on.
        return self._journal.commit(replace(state, stage="close", log_bytes=state.round_bytes))

    def _check_labels_are_there(self, state: State, replies: Mapping[str, messages.JoinReply]) -> None:
        """A site may know of more labels than were counted here, after a kill, but never of fewer."""
        for site, reply in replies.items():
            counted = state.labels.get(site, 0)
            if reply.labelled < counted:
                raise FealError(
                    f"Site {site} has {reply.labelled} labels where {counted} were counted: "
                    "put its site.sqlite back from a copy, or start a new run."
                )

    def _train(self, state: State) -> State:
        state = self._caught_up(state)
        last = state.step + 1 == self._settings.communication_rounds
        every = self._settings.evaluate_every
        weights = self._journal.weights(state, state.current)
        request = messages.Train(
            run=self._run,
            round=state.round,
            step=state.step,
            weights=weights,
            class_counts=self._total_counts(state),
            evaluate=bool(every) and state.step > 0 and state.step % every == 0,
        )
        participants = self._sites if last else self._participants(state)
        present = [site for site in participants if site not in state.missed]
        replies = self._ask(request, present, messages.TrainReply, doing="training")
        averaged = self._average(weights, replies)
        losses = {site: reply.loss for site, reply in replies.items()}
        event: dict[str, Any] = {"event": "step", "round": state.round, "step": state.step, "loss": losses}
        if request.evaluate:
            event["metrics"] = metrics(self._task, {site: reply.statistics for site, reply in replies.items()})
        name = f"round-{state.round:03}" + ("" if last else f"-step-{state.step + 1:03}")
        committed = self._journal.commit(
            replace(
                state,
                stage="close" if last else "train",
                step=state.step + 1,
                class_counts=_updated(state.class_counts, replies),
                labels=_labels(state.labels, replies),
                seconds=_add_seconds(state.seconds, replies),
            ),
            weights=(name, averaged),
            events=[event],
        )
        self._watcher.stepped(round=state.round, step=state.step, losses=losses)
        return committed

    def _close(self, state: State) -> State:
        closing = Closing(
            round=state.round,
            class_counts=self._total_counts(state) if state.round else None,
            ask=state.round < self._settings.rounds,
        )
        doing = "selecting" if closing.ask else "evaluating"
        present = [site for site in self._sites if site not in state.missed]
        replies = self._ask(self._request(state, closing), present, messages.CloseRoundReply, doing=doing)
        record = self._record(state, replies) if state.round else None
        notes = _evidence_notes(state.round, replies) if self._settings.loss == "evidential" else []
        events = [*([record] if record else []), *({"event": "note", "note": note} for note in notes)]
        waiting = any(reply.pending for reply in replies.values())
        after = replace(
            state,
            class_counts=_updated(state.class_counts, replies),
            labels=_labels(state.labels, replies),
            round_bytes=state.log_bytes,
            missed={site: (*state.missed.get(site, ()), closing) for site in self._sites if site not in replies},
        )
        committed = self._journal.commit(self._next(after, waiting=waiting), events=events)
        for note in notes:
            self._watcher.note(note)
        if record is not None:
            self._watcher.closed(record)
        return committed

    def _next(self, state: State, *, waiting: bool) -> State:
        """After a round is closed: wait for its labels, begin the next, or be finished."""
        if waiting:
            return replace(state, stage="waiting")
        if state.round >= self._settings.rounds:
            return replace(state, stage="finished")
        anew = self._settings.restart or state.round == 0
        current = "initial" if anew else state.current
        return replace(state, stage="train", round=state.round + 1, step=0, polls=0, current=current, seconds={})

    def _request(self, state: State, closing: Closing) -> messages.CloseRound:
        weights = self._journal.weights(state, f"round-{closing.round:03}") if closing.round else None
        return messages.CloseRound(run=self._run, weights=weights, **asdict(closing))

    def _caught_up(self, state: State) -> State:
        """A site that was absent at the end of a round gets that same message before any other."""
        for site in sorted(state.missed):
            for closing in state.missed[site]:
                request = self._request(state, closing)
                replies = self._ask(request, [site], messages.CloseRoundReply, doing="catching up", quorum=0)
                if not replies:
                    break
                left = {**state.missed, site: state.missed[site][1:]}
                state = self._journal.commit(
                    replace(
                        state,
                        missed={name: rest for name, rest in left.items() if rest},
                        class_counts=_updated(state.class_counts, replies),
                        labels=_labels(state.labels, replies),
                    )
                )
        return state

    def _collect(self, state: State) -> State:
        request = messages.Labels(run=self._run, round=state.round, step=state.polls + 1)
        replies = self._ask(request, self._sites, messages.LabelsReply, doing="collecting labels")
        waiting = any(reply.pending for reply in replies.values())
        after = replace(
            state,
            polls=state.polls + 1,
            class_counts=_updated(state.class_counts, replies),
            labels=_labels(state.labels, replies),
        )
        return self._journal.commit(self._next(after, waiting=waiting))

    def _ask(
        self,
        request: messages.Request,
        sites: Sequence[str],
        expected: type[AnyReply],
        *,
        doing: str,
        quorum: int | None = None,
    ) -> dict[str, AnyReply]:
        """Send a request and gather the good replies, in the order of site names; too few end the run."""
        request = messages.seal(request)
        replies: dict[str, AnyReply] = {}
        failures: list[str] = []
        for site, data in self._engine.deliver(messages.encode(request), sites):
            reply = messages.decode_reply(data)
            loss = reply.loss if isinstance(reply, messages.TrainReply) else None
            self._watcher.answered(round=request.round, step=request.step, site=site, doing=doing, loss=loss)
            if not isinstance(reply, expected) or reply.key != request.key or reply.site != site:
                failures.append(f"Site {site} sent a reply to something else.")
            elif reply.status == "failed":
                failures.append(self._engine.explain(site, reply.reason))
            else:
                replies[site] = reply
        self._check_quorum(len(replies), len(sites), quorum, failures)
        return {site: replies[site] for site in sorted(replies)}

    def _check_quorum(self, good: int, asked: int, quorum: int | None, failures: Sequence[str]) -> None:
        wanted = self._settings.quorum or len(self._sites) if quorum is None else quorum
        if good < min(asked, wanted):
            raise FealError(failures[0])
        for failure in failures:
            if failure not in self._said:
                self._said.add(failure)
                self._watcher.note(f"Left out: {failure}")

    def _participants(self, state: State) -> list[str]:
        wanted = max(1, math.ceil(round(self._settings.participation * len(self._sites), 9)))
        address = Address(seed=self._settings.seed, purpose="participation", round=state.round, step=state.step)
        drawn = torch.randperm(len(self._sites), generator=address.generator())[:wanted]
        return sorted(self._sites[index] for index in drawn.tolist())

    def _average(self, before: Weights, replies: Mapping[str, messages.TrainReply]) -> Weights:
        trained = [reply for reply in replies.values() if reply.weights is not None]
        if not trained:
            return before
        return fedavg([reply.weights or {} for reply in trained], [reply.labelled for reply in trained])

    def _total_counts(self, state: State) -> list[int] | None:
        shared = [counts for counts in state.class_counts.values() if counts is not None]
        return [sum(column) for column in zip(*shared, strict=True)] if shared else None

    def _record(self, state: State, replies: Mapping[str, messages.CloseRoundReply]) -> dict[str, Any]:
        by_site = {site: reply.statistics for site, reply in replies.items()}
        selection = {
            site: reply.model_dump(include={"local_model", "asked", "answered", "pending", "rejected", "filled"})
            for site, reply in replies.items()
        }
        return {
            "event": "round",
            "round": state.round,
            "labels": dict(state.labels),
            "metrics": metrics(self._task, by_site),
            "diagnostics": {**diagnostics(self._task, by_site), "selection": selection},
            "energy": {site: statistics.energy for site, statistics in by_site.items() if statistics},
            "seconds": _add_seconds(state.seconds, replies),
        }

    def _warn_of_small_pools(self, replies: Mapping[str, messages.JoinReply]) -> None:
        """Say where the budget is more than a site can give."""
        budget = self._settings.budget
        for site, reply in replies.items():
            limit = label_limit(self._settings, samples=reply.pool)
            if budget > limit:
                self._watcher.note(
                    f"Site {site} may give {limit} labels in all, fewer than the budget of {budget}: "
                    "it is asked for no more."
                )


def _kind(reply: messages.JoinReply) -> tuple[object, ...]:
    return reply.task, reply.classes, reply.channels, reply.height, reply.width


def _updated(
    before: Mapping[str, Sequence[int] | None],
    replies: Mapping[str, messages.TrainReply | messages.CloseRoundReply | messages.LabelsReply],
) -> dict[str, Sequence[int] | None]:
    return {**before, **{site: reply.class_counts for site, reply in replies.items()}}


def _labels(
    before: Mapping[str, int],
    replies: Mapping[str, messages.TrainReply | messages.CloseRoundReply | messages.LabelsReply],
) -> dict[str, int]:
    return {**before, **{site: reply.labelled for site, reply in replies.items()}}


def _add_seconds(before: Mapping[str, float], replies: Mapping[str, messages.Reply]) -> dict[str, float]:
    total = dict(before)
    for reply in replies.values():
        for phase, seconds in reply.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


def _evidence_notes(round_: int, replies: Mapping[str, messages.CloseRoundReply]) -> list[str]:
    """A sentence where the global model gives no evidence at all."""
    silent = [
        site
        for site, reply in replies.items()
        if reply.statistics is not None and reply.statistics.zero_evidence == reply.statistics.samples
    ]
    if not silent:
        return []
    return [
        f"Round {round_}: the global model has no evidence for any class on the test samples of "
        f"{', '.join(silent)}, so its uncertainty tells them not apart; "
        "a larger training.lr or evidence.activation=exp helps."
    ]
