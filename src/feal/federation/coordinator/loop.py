"""Run the loop: rounds of broadcast, local training and averaging, with queries for labels between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace

from feal import __version__
from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.aggregation import aggregate
from feal.federation.callbacks import Callback
from feal.federation.coordinator.exchange import AnyReply, Exchange, Replies
from feal.federation.coordinator.participants import Participants
from feal.federation.coordinator.progress import (
    LabellingReply,
    add_seconds,
    advance,
    catch_up,
    count_labels,
    count_left_out,
    has_enough_labels,
    order_missed,
    reopen,
)
from feal.federation.coordinator.round_summary import (
    edited_strategy_note,
    evidence_notes,
    initial_model_notes,
    opening_notes,
    round_record,
    step_record,
)
from feal.federation.coordinator.validation import check_images
from feal.federation.transport.base import Transport
from feal.models import build_initial_model
from feal.plugins import source_digest
from feal.rng import Address
from feal.rundir.journal import Journal, RoundEnd, State, Weights
from feal.rundir.layout import round_weights
from feal.rundir.records import Event, Note
from feal.selection import EARLIER_ROLES, Role, build_strategy, find_strategy
from feal.settings import Settings


class Coordinator:
    """Drive one run from its last commit to its end, knowing sites only by their messages."""

    def __init__(self, settings: Settings, *, transport: Transport, journal: Journal, callback: Callback) -> None:
        self._settings = settings
        self._journal = journal
        self._callback = callback
        self._exchange = Exchange(
            transport=transport,
            run=journal.run,
            callback=callback,
            timeout=settings.round_timeout,
            metrics=settings.metrics,
        )
        self._sites = Participants(
            transport.sites(), quorum=settings.quorum, share=settings.participation, seed=settings.seed
        )
        self._run = settings.identity()
        self._unlogged: list[Event] = []

    def begin(self) -> State:
        """Join the sites, draw the initial weights, and commit the start of the run.

        Raises:
            FealError: too few sites answer, or they do not fit together or to the settings.
        """
        self._join(self._sites.names, labels={}, required=self._sites.quorum)
        joined = self._sites.joined
        if self._settings.initial_labels == "dataset" and not any(reply.given for reply in joined.values()):
            raise FealError("No site has a label to start with: add some, or start with initial_labels=random.")
        first = next(iter(joined.values()))
        check_images(
            first,
            model=self._settings.model.name,
            transforms=self._settings.transforms,
            trainable=self._settings.training.trainable,
        )
        Address(seed=self._settings.seed, purpose="initial weights").seed_torch()
        network = build_initial_model(
            self._settings.model.name,
            params=self._settings.model.params,
            weights=self._settings.weights,
            weights_digest=self._settings.weights_digest,
            task=first.task,
            classes=len(first.classes),
            channels=first.channels,
            height=first.height,
            width=first.width,
        ).keep_part(self._settings.training.trainable)
        facts = first.model_dump(include={"classes", "channels", "height", "width", "dtype", "fitting"})
        state = State(configuration=self._settings.dump(), task=first.task, facts=facts)
        return self._journal.begin(state, network.state_dict())

    def proceed(self, state: State) -> Iterator[State]:
        """Continue until the run is finished, yielding every state that was committed.

        A run that waits for labels yields a `waiting` state for every poll that did not find enough of them; to
        continue is to poll again.
        """
        self._exchange.clear()
        if not self._sites.joined:
            self._join(self._sites.names, labels=state.labels, required=self._sites.quorum)
        if state.stage == "finished" and state.round < self._settings.rounds:
            # Committed at once: the log is about to be overwritten from there on.
            state = self._journal.commit(reopen(state))
        self._callback.on_join(self._sites.joined, round=state.round, step=state.step)
        if state.stage == "close" and state.round == 0:
            self._note(opening_notes(self._settings, self._sites.joined))
        state = self._check_strategy(state)
        if state.stage == "finished":
            yield self._collect_late(state)
        while state.stage != "finished":
            state = self._catch_up(state)
            state = {"train": self._train, "close": self._close, "waiting": self._collect}[state.stage](state)
            # The first poll after a round was closed is part of closing it: after a kill there may be answers.
            if state.stage != "waiting" or state.polls:
                yield state

    def _join(self, sites: Sequence[str], *, labels: Mapping[str, int], required: int) -> None:
        """Introduce the run to sites and admit those that fit together."""
        # The coordinator's own directory does not concern the sites.
        configuration = {name: value for name, value in self._settings.dump().items() if name != "transport"}
        request = messages.Join(run=self._run, configuration=configuration, version=__version__)
        replies = self._exchange.ask(request, sites, messages.JoinReply, doing="joining")
        self._unlogged += replies.events
        problems = self._sites.admit(replies.good, labels=labels)
        fitting = {site: reply for site, reply in replies.good.items() if site not in problems}
        self._exchange.require(Replies(good=fitting, left_out={**replies.left_out, **problems}), required)

    def _catch_up(self, state: State) -> State:
        """Join the sites that were absent, and send them each round end that they missed, before anything else."""
        if self._sites.absent():
            self._join(self._sites.absent(), labels=state.labels, required=0)
        for end in order_missed(state.missed):
            behind = [site for site, ends in state.missed.items() if ends and ends[0] == end]
            replies = self._exchange.ask(
                self._close_request(state, end),
                [site for site in behind if site in self._sites.joined],
                messages.CloseRoundReply,
                doing="catching up",
                task=state.task,
                classes=len(state.facts["classes"]),
            )
            self._exchange.require(replies, 0)
            self._unlogged += replies.events
            if replies.good:
                # Sites that are still absent are counted when the message that is due now is sent.
                state = self._commit(catch_up(count_labels(state, replies.good), replies.good))
        return state

    def _train(self, state: State) -> State:
        """Carry out one communication round."""
        is_last = state.step + 1 == self._settings.communication_rounds
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
        replies = self._ask_to_train(request, state, wanted=self._sites.trainees(is_last=is_last))
        record = step_record(state, replies.good, metrics=self._settings.metrics)
        after = replace(
            count_left_out(count_labels(state, replies.good), replies.left_out),
            stage="close" if is_last else "train",
            step=state.step + 1,
            trained={**state.trained, **{site: reply.labelled for site, reply in replies.good.items()}},
            seconds=add_seconds(state.seconds, replies.good),
        )
        name = round_weights(state.round, None if is_last else state.step + 1)
        average = aggregate(weights, replies.good)
        committed = self._commit(after, weights=(name, average), events=[*replies.events, record])
        self._exchange.clear()
        self._callback.on_step(round=state.round, step=state.step, losses=record.loss)
        return committed

    def _close(self, state: State) -> State:
        """End a round: evaluate its model and query labels for the next round, unless it is the last."""
        end = RoundEnd(round=state.round, class_counts=state.round_counts, ask=state.round < self._settings.rounds)
        doing = "selecting" if end.ask else "evaluating"
        replies = self._ask_all(self._close_request(state, end), messages.CloseRoundReply, state, doing=doing)
        after = count_left_out(count_labels(state, replies.good), replies.left_out)
        record = round_record(after, replies.good, metrics=self._settings.metrics) if state.round else None
        notes = evidence_notes(state.round, replies.good) if self._settings.loss_name == "evidential" else []
        notes += initial_model_notes(state.round, replies.good)
        # What a record has counted is not counted again; that of the last round may be rewritten.
        left_out = after.left_out if not state.round else {} if end.ask else state.left_out
        absent = [site for site in self._sites.names if site not in replies.good]
        after = replace(
            after,
            round_bytes=state.log_bytes,
            missed={site: [*state.missed.get(site, ()), end] for site in absent},
            left_out=left_out,
        )
        events: list[Event] = [
            *replies.events,
            *([record] if record else []),
            *(Note(note=note) for note in notes),
        ]
        committed = self._commit(
            self._advance(after, has_labels=not end.ask or self._has_enough_labels(replies.good)), events=events
        )
        for note in notes:
            self._callback.on_note(note)
        if record is not None:
            self._callback.on_round(record)
        self._note_rejected(replies.good)
        return committed

    def _collect(self, state: State) -> State:
        """Poll the sites for the labels of the next round."""
        replies = self._ask_for_labels(state)
        after = count_left_out(count_labels(state, replies.good), replies.left_out)
        enough = self._has_enough_labels(replies.good)
        advanced = self._advance(replace(after, polls=state.polls + 1), has_labels=enough)
        committed = self._commit(advanced, events=replies.events)
        self._note_rejected(replies.good)
        self._callback.on_labels(replies.good, round=state.round + 1, enough=enough)
        return committed

    def _collect_late(self, state: State) -> State:
        """Collect labels that came after the run was finished: they count once it is extended."""
        replies = self._ask_for_labels(state)
        self._note_rejected(replies.good)
        after = count_labels(state, replies.good)
        if after.labels != state.labels or after.class_counts != state.class_counts:
            self._callback.on_note("Labels came since the run was finished; they count once it is extended.")
        return self._commit(after)

    def _advance(self, state: State, *, has_labels: bool) -> State:
        return advance(state, has_labels=has_labels, rounds=self._settings.rounds, restart=self._settings.restart)

    def _close_request(self, state: State, end: RoundEnd) -> messages.CloseRound:
        weights: Weights | None = None
        if end.round:
            weights = self._journal.weights(state, round_weights(end.round))
        elif EARLIER_ROLES & self._strategy_roles():
            weights = self._journal.weights(state, "initial")
        return messages.CloseRound(run=self._run, weights=weights, **asdict(end))

    def _strategy_roles(self) -> frozenset[Role]:
        return build_strategy(self._settings.strategy).required_roles()

    def _ask_for_labels(self, state: State) -> Replies[messages.LabelsReply]:
        request = messages.Labels(run=self._run, round=state.round, step=state.polls + 1)
        return self._ask_all(request, messages.LabelsReply, state, doing="collecting labels")

    def _ask_all(
        self, request: messages.Request, expected: type[AnyReply], state: State, *, doing: str
    ) -> Replies[AnyReply]:
        """Send a request to every site that is up to date; the quorum must reply."""
        present = self._sites.up_to_date(state)
        replies = self._exchange.ask(
            request, present, expected, doing=doing, task=state.task, classes=len(state.facts["classes"])
        )
        behind = [site for site in self._sites.names if site not in present]
        return self._exchange.require(replies.with_behind(behind), self._sites.quorum)

    def _ask_to_train(self, request: messages.Train, state: State, *, wanted: int) -> Replies[messages.TrainReply]:
        """Have `wanted` sites train, in the order drawn; the next site replaces one that fails."""
        order = self._sites.draw(round_=state.round, step=state.step)
        present = [site for site in order if site in self._sites.up_to_date(state)]
        behind = [site for site in order[:wanted] if site not in present]
        replies = Replies[messages.TrainReply](good={}).with_behind(behind)
        tolerated = self._sites.tolerated
        while present and len(replies.good) < wanted and len(replies.left_out) <= tolerated:
            count = wanted - len(replies.good)
            wave, present = sorted(present[:count]), present[count:]
            replies += self._exchange.ask(
                request,
                wave,
                messages.TrainReply,
                doing="training",
                task=state.task,
                classes=len(state.facts["classes"]),
            )
        return self._exchange.require(replies, max(1, wanted - tolerated))

    def _has_enough_labels(self, replies: Mapping[str, LabellingReply]) -> bool:
        return has_enough_labels(
            replies, share=float(self._settings.annotator.params.get("min_share", 1.0)), sites=self._sites.quorum
        )

    def _note_rejected(self, replies: Mapping[str, LabellingReply]) -> None:
        for site, reply in replies.items():
            if reply.refused:
                self._exchange.note_once(
                    f"Site {site} rejected {reply.refused} answer{'s' if reply.refused > 1 else ''}: "
                    "its annotation/rejected.csv lists them with the reasons."
                )

    def _commit(
        self, state: State, *, weights: tuple[str, Weights] | None = None, events: Sequence[Event] = ()
    ) -> State:
        """Commit, together with the events since the last commit."""
        unlogged, self._unlogged = self._unlogged, []
        return self._journal.commit(state, weights=weights, events=[*unlogged, *events])

    def _check_strategy(self, state: State) -> State:
        """Record the hash of a user-defined strategy's file; note it if it changed since the run started."""
        digest = source_digest(find_strategy(self._settings.strategy.name))
        if state.strategy_sha256 and digest != state.strategy_sha256:
            self._note([edited_strategy_note(self._settings.strategy.name, round_=state.round)])
        return replace(state, strategy_sha256=digest)

    def _note(self, notes: Sequence[str]) -> None:
        """Show notes now, and log them with the next commit."""
        for note in notes:
            self._callback.on_note(note)
        self._unlogged += [Note(note=note) for note in notes]
