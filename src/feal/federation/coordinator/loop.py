"""Run the loop: rounds of broadcast, local training and averaging, with queries for labels between them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from feal import __version__
from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.aggregation import aggregate
from feal.federation.callbacks import Callback
from feal.federation.closed_form import (
    LOSSES,
    add_sums,
    combine_projection,
    count_steps,
    describe_sums,
    is_closed_form,
    read_frozen,
    solve_head,
    split_projection,
)
from feal.federation.coordinator.exchange import Exchange, Replies
from feal.federation.coordinator.round_summary import (
    add_seconds,
    closing_notes,
    edited_strategy_note,
    opening_notes,
    round_record,
    step_record,
)
from feal.federation.coordinator.stopping import describe_forecast, find_stop, may_stop
from feal.federation.coordinator.validation import check_images
from feal.federation.transport.base import Transport
from feal.models import build_initial_model
from feal.plugins import source_digest
from feal.rng import Address
from feal.rundir.journal import Journal, RoundEnd, State, Weights
from feal.rundir.layout import round_weights
from feal.rundir.records import Event, Note, Round
from feal.selection import EARLIER_ROLES, build_strategy, check_task, find_strategy
from feal.settings import Settings, Task, ceil_share
from feal.tensors import Tensors


class Coordinator:
    """Drive one run from its last commit to its end, knowing sites only by their messages."""

    def __init__(self, settings: Settings, *, transport: Transport, journal: Journal, callback: Callback) -> None:
        self._settings = settings
        self._journal = journal
        self._callback = callback
        self._exchange = Exchange(settings, transport=transport, run=journal.run, callback=callback)
        self._run = settings.identity()
        self._unlogged: list[Event] = []

    def begin(self) -> State:
        """Join the sites, draw the initial weights, and commit the start of the run.

        Raises:
            FealError: too few sites answer, or they do not fit together or to the settings.
        """
        self._join(self._exchange.sites, labels={}, required=self._exchange.quorum)
        joined = self._exchange.joined
        if self._settings.initial_labels == "dataset" and not any(reply.given for reply in joined.values()):
            raise FealError("No site has a label to start with: add some, or start with initial_labels=random.")
        first = next(iter(joined.values()))
        check_task(build_strategy(self._settings.strategy), first.task, name=self._settings.strategy.name)
        check_images(
            first,
            model=self._settings.model.name,
            transforms=self._settings.transforms,
            trainable=self._settings.training.trainable,
        )
        facts = first.model_dump(include={"classes", "channels", "height", "width", "dtype", "fitting"})
        state = State(configuration=self._settings.dump(), task=first.task, facts=facts)
        if first.encoder:
            # The initial weights come with the projection of the features, once the sites have sent their sums.
            facts |= {"encoder": first.encoder, "features": first.features}
            return self._journal.commit(
                replace(state, facts=facts, stage="train"), weights=(round_weights(0, 0), {})
            )
        return self._journal.commit(state, weights=("initial", self._draw_weights(state)))

    def _draw_weights(self, state: State) -> Weights:
        """Draw the initial weights of the part that is trained."""
        Address(seed=self._settings.seed, purpose="initial weights").seed_torch()
        network = build_initial_model(
            self._settings.model.name,
            params=self._settings.model.params,
            weights=self._settings.weights,
            weights_digest=self._settings.weights_digest,
            task=state.task,
            classes=len(state.facts["classes"]),
            **{name: state.facts[name] for name in ("channels", "height", "width")},
        )
        return network.keep_part(self._settings.training.trainable).state_dict()

    def proceed(self, state: State) -> Iterator[State]:
        """Continue until the run is finished, yielding every state that was committed.

        A run that waits for labels yields a `waiting` state for every poll that did not find enough of them; to
        continue is to poll again.
        """
        self._exchange.clear()
        if not self._exchange.joined:
            self._join(self._exchange.sites, labels=state.labels, required=self._exchange.quorum)
        if state.stage == "finished" and not state.is_over(self._settings):
            # There are to be more rounds: return to the end of the last one. Committed at once, since the log is
            # about to be overwritten from there on.
            cleared = state.round if state.stopped else state.cleared
            state = replace(state, stage="close", log_bytes=state.round_bytes, cleared=cleared, stopped=None)
            state = self._journal.commit(state)
        self._check_encoder(state)
        self._callback.on_join(self._exchange.joined, round=state.round, step=state.step)
        if state.round == 0 and state.stage in ("train", "close"):
            self._note(opening_notes(self._settings, self._exchange.joined))
        state = self._check_strategy(state)
        if state.stage == "finished":
            if state.stopped:
                self._callback.on_note(self._describe_stop(self._journal.rounds(state)[-1]))
            yield self._collect_late(state)
        while state.stage != "finished":
            state = self._catch_up(state)
            state = {"train": self._train, "close": self._close, "waiting": self._collect}[state.stage](state)
            # The first poll after a round was closed is part of closing it: after a kill there may be answers.
            if state.stage != "waiting" or state.polls:
                yield state

    def _join(self, sites: Sequence[str], *, labels: Mapping[str, int], required: int) -> None:
        # The coordinator's own directory does not concern the sites.
        configuration = {name: value for name, value in self._settings.dump().items() if name != "transport"}
        request = messages.Join(run=self._run, configuration=configuration, version=__version__)
        self._unlogged += self._exchange.join(request, sites, labels=labels, required=required).events

    def _catch_up(self, state: State) -> State:
        """Join the sites that were absent, and send them each round end that they missed, before anything else."""
        joined = self._exchange.joined
        if len(joined) < len(self._exchange.sites):
            absent = [site for site in self._exchange.sites if site not in joined]
            self._join(absent, labels=state.labels, required=0)
        for end in order_missed(state.missed):
            behind = [
                site for site, ends in state.missed.items() if ends[0] == end and site in self._exchange.joined
            ]
            replies = self._exchange.ask(
                self._close_request(state, end),
                behind,
                messages.CloseRoundReply,
                doing="catching up",
                state=state,
            )
            self._exchange.require(replies, 0)
            self._unlogged += replies.events
            if replies.good:
                left = {site: ends[1:] if site in replies.good else ends for site, ends in state.missed.items()}
                state = replace(state, missed={site: ends for site, ends in left.items() if ends})
                # Sites that are still absent are counted when the message that is due now is sent.
                state = self._commit(count_labels(state, replies.good))
        return state

    def _train(self, state: State) -> State:
        """Carry out one communication round."""
        is_last = state.step + 1 == count_steps(self._settings, state.round)
        every = self._settings.evaluate_every
        sums = self._describe_sums(state)
        weights = split_projection(self._journal.weights(state, state.current))[1]
        request = messages.Train(
            run=self._run,
            round=state.round,
            step=state.step,
            weights=weights,
            class_counts=state.round_counts,
            evaluate=bool(every) and state.step > 0 and state.step % every == 0,
        )
        replies = self._exchange.ask_to_train(request, state, is_last=is_last or sums is not None, layout=sums)
        metrics = self._exchange.metrics(state.task)
        record = step_record(state, replies.good, metrics=metrics) if state.round else None
        after = replace(
            count_replies(state, replies),
            stage="close" if is_last else "train",
            step=state.step + 1,
            trained={**state.trained, **{site: reply.labelled for site, reply in replies.good.items()}},
            seconds=add_seconds(state.seconds, replies.good),
        )
        name = round_weights(state.round, None if is_last else state.step + 1) if state.round else "initial"
        combined = aggregate(weights, replies.good) if sums is None else self._fit(state, weights, replies)
        events: list[Event] = [*replies.events, *([record] if record else [])]
        committed = self._commit(after, weights=(name, combined), events=events)
        self._exchange.clear()
        if record is not None:
            self._callback.on_step(round=state.round, step=state.step, losses=record.loss)
        return committed

    def _describe_sums(self, state: State) -> Tensors | None:
        """Return the tensors that sites send in place of weights in this step; None if they send weights."""
        if not is_closed_form(self._settings, state.round):
            return None
        return describe_sums(
            self._settings,
            round_=state.round,
            step=state.step,
            features=state.facts["features"],
            classes=len(state.facts["classes"]),
        )

    def _fit(self, state: State, before: Weights, replies: Replies[messages.TrainReply]) -> Weights:
        """Combine the sums of sites: to a projection, to sums over all sites, or to a ridge head."""
        params = read_frozen(self._settings.model)
        assert params is not None
        sent = [reply.weights for reply in replies.good.values() if reply.weights is not None]
        if state.round == 0:
            projection = combine_projection(sent, components=params.components)
            return {**self._draw_weights(state), **projection}
        total = add_sums(sent)
        if total is None:
            # Without any label there is no head to fit; the one before stays.
            return before if "gram" not in before else split_projection(self._journal.weights(state, "initial"))[1]
        task = cast(Task, state.task)
        if state.step == 0:
            return solve_head(total, params, task=task) if count_steps(self._settings, state.round) == 1 else total
        if "gram" not in before:
            return before
        return solve_head(before, params, task=task, losses=total[LOSSES])

    def _close(self, state: State) -> State:
        """End a round: evaluate its model and query labels for the next round, unless it is the last.

        Where `stop_below` may make it the last, its model is evaluated without a query first, so that no
        labels are asked for in vain; if the run goes on, the round is closed once more, with the query.
        """
        is_undecided = may_stop(state, self._settings)
        ask = state.round < self._settings.rounds and not is_undecided
        end = RoundEnd(round=state.round, class_counts=state.round_counts, ask=ask)
        doing = "selecting" if end.ask else "evaluating"
        replies = self._exchange.ask_all(
            self._close_request(state, end), messages.CloseRoundReply, state, doing=doing
        )
        after = count_replies(state, replies)
        record = None
        if state.round:
            earlier = self._journal.rounds(state)
            metrics = self._exchange.metrics(state.task)
            record = round_record(after, replies.good, metrics=metrics, earlier=earlier)
        notes = closing_notes(state.round, replies.good, loss=self._settings.loss_name)
        if is_undecided and record is not None:
            stop = find_stop(record, self._settings)
            if stop is None:
                return self._commit(replace(state, cleared=state.round))
            after = replace(after, stopped=stop)
            notes.append(self._describe_stop(record))
        # What a record has counted is not counted again; that of the last round may be rewritten.
        left_out = after.left_out if not state.round else {} if end.ask else state.left_out
        absent = [site for site in self._exchange.sites if site not in replies.good]
        after = replace(
            after,
            round_bytes=state.log_bytes,
            missed={site: [*state.missed.get(site, ()), end] for site in absent},
            left_out=left_out,
        )
        events: list[Event] = [*replies.events, *([record] if record else []), *(Note(note=n) for n in notes)]
        has_labels = not end.ask or self._has_enough_labels(replies.good)
        committed = self._commit(self._advance(after, has_labels=has_labels), events=events)
        for note in notes:
            self._callback.on_note(note)
        if record is not None:
            self._callback.on_round(record)
        self._note_rejected(replies.good)
        return committed

    def _collect(self, state: State) -> State:
        """Poll the sites for the labels of the next round."""
        replies = self._ask_for_labels(state)
        enough = self._has_enough_labels(replies.good)
        after = replace(count_replies(state, replies), polls=state.polls + 1)
        committed = self._commit(self._advance(after, has_labels=enough), events=replies.events)
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
        """Move on after a round was closed: wait for its labels, start the next round, or finish."""
        if not has_labels:
            return replace(state, stage="waiting")
        if state.round >= self._settings.rounds or state.stopped:
            return replace(state, stage="finished")
        shared = [counts for counts in state.class_counts.values() if counts is not None]
        return replace(
            state,
            stage="train",
            round=state.round + 1,
            step=0,
            polls=0,
            current="initial" if self._settings.restart or state.round == 0 else state.current,
            seconds={},
            round_counts=[sum(column) for column in zip(*shared, strict=True)] if shared else None,
            trained=dict(state.labels),
        )

    def _close_request(self, state: State, end: RoundEnd) -> messages.CloseRound:
        weights: Weights | None = None
        if end.round:
            weights = self._journal.weights(state, round_weights(end.round))
        elif EARLIER_ROLES & build_strategy(self._settings.strategy).required_roles() or "encoder" in state.facts:
            weights = self._journal.weights(state, "initial")
        return messages.CloseRound(run=self._run, weights=weights, **asdict(end))

    def _ask_for_labels(self, state: State) -> Replies[messages.LabelsReply]:
        request = messages.Labels(run=self._run, round=state.round, step=state.polls + 1)
        return self._exchange.ask_all(request, messages.LabelsReply, state, doing="collecting labels")

    def _has_enough_labels(self, replies: Mapping[str, messages.LabelsReply]) -> bool:
        share = float(self._settings.annotator.params.get("min_share", 1.0))
        return has_enough_labels(replies, share=share, sites=self._exchange.quorum)

    def _note_rejected(self, replies: Mapping[str, messages.LabelsReply]) -> None:
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

    def _describe_stop(self, record: Round) -> str:
        """Describe why the run ended after a round that was not its last."""
        why = describe_forecast(record.forecast, stop_below=self._settings.stop_below) if record.forecast else ""
        return f"The run stopped after round {record.round} of {self._settings.rounds}. {why}".rstrip()

    def _check_strategy(self, state: State) -> State:
        """Record the hash of a user-defined strategy's file; note it if it changed since the run started."""
        digest = source_digest(find_strategy(self._settings.strategy.name))
        if state.strategy_sha256 and digest != state.strategy_sha256:
            self._note([edited_strategy_note(self._settings.strategy.name, round_=state.round)])
        return replace(state, strategy_sha256=digest)

    def _check_encoder(self, state: State) -> None:
        """Check that the encoder at the sites is still the one that the run started with."""
        for site, reply in self._exchange.joined.items():
            if reply.encoder != state.facts.get("encoder", ""):
                raise FealError(
                    f"The encoder at site {site} is not the one that the run started with: put that one back."
                )

    def _note(self, notes: Sequence[str]) -> None:
        """Show notes now, and log them with the next commit."""
        for note in notes:
            self._callback.on_note(note)
        self._unlogged += [Note(note=note) for note in notes]


def count_labels(state: State, replies: Mapping[str, messages.LabelCounts]) -> State:
    """Update the numbers of labels and the class counts of the sites that replied."""
    return replace(
        state,
        class_counts={**state.class_counts, **{site: reply.class_counts for site, reply in replies.items()}},
        labels={**state.labels, **{site: reply.labelled for site, reply in replies.items()}},
    )


def count_replies(state: State, replies: Replies[Any]) -> State:
    """Update what is known of the labels, and count one more message for each site without a usable reply."""
    left_out = {site: state.left_out.get(site, 0) + 1 for site in replies.left_out}
    return replace(count_labels(state, replies.good), left_out={**state.left_out, **left_out})


def has_enough_labels(replies: Mapping[str, messages.LabelsReply], *, share: float, sites: int) -> bool:
    """Return whether at least `sites` sites have that share of the labels they asked for."""
    ready = [ceil_share(share, reply.asked) <= reply.asked - reply.pending for reply in replies.values()]
    return sum(ready) >= sites


def order_missed(missed: Mapping[str, Sequence[RoundEnd]]) -> list[RoundEnd]:
    """List every round end that any site missed, once, the oldest first."""
    ends: list[RoundEnd] = []
    for entries in missed.values():
        ends += [end for end in entries if end not in ends]
    return sorted(ends, key=lambda end: (end.round, end.ask))
