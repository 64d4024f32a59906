"""Advance the coordinator's state: pure functions of the committed state and the sites' replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from feal.federation.protocol import CloseRoundReply, LabelsReply, Reply, TrainReply
from feal.rundir.journal import RoundEnd, State
from feal.settings import ceil_share

LabellingReply = CloseRoundReply | LabelsReply
"""Replies that report how many labels were asked for and answered."""


def count_labels(state: State, replies: Mapping[str, TrainReply | LabellingReply]) -> State:
    """Update the numbers of labels and the class counts of the sites that replied."""
    return replace(
        state,
        class_counts={**state.class_counts, **{site: reply.class_counts for site, reply in replies.items()}},
        labels={**state.labels, **{site: reply.labelled for site, reply in replies.items()}},
    )


def count_left_out(state: State, sites: Mapping[str, str]) -> State:
    """Count one more message without a usable reply for each of the sites."""
    return replace(state, left_out={**state.left_out, **{site: state.left_out.get(site, 0) + 1 for site in sites}})


def advance(state: State, *, has_labels: bool, rounds: int, restart: bool) -> State:
    """Move on after a round was closed: wait for its labels, start the next round, or finish."""
    if not has_labels:
        return replace(state, stage="waiting")
    if state.round >= rounds:
        return replace(state, stage="finished")
    return replace(
        state,
        stage="train",
        round=state.round + 1,
        step=0,
        polls=0,
        current="initial" if restart or state.round == 0 else state.current,
        seconds={},
        round_counts=sum_class_counts(state.class_counts),
        trained=dict(state.labels),
    )


def reopen(state: State) -> State:
    """Return a finished run, whose number of rounds was raised, to the end of its last round."""
    return replace(state, stage="close", log_bytes=state.round_bytes)


def sum_class_counts(class_counts: Mapping[str, Sequence[int] | None]) -> list[int] | None:
    """Sum class counts over the sites that share theirs; None where no site does."""
    shared = [counts for counts in class_counts.values() if counts is not None]
    return [sum(column) for column in zip(*shared, strict=True)] if shared else None


def has_enough_labels(replies: Mapping[str, LabellingReply], *, share: float, sites: int) -> bool:
    """Return whether at least `sites` sites have that share of the labels they asked for."""
    ready = [ceil_share(share, reply.asked) <= reply.asked - reply.pending for reply in replies.values()]
    return sum(ready) >= sites


def order_missed(missed: Mapping[str, Sequence[RoundEnd]]) -> list[RoundEnd]:
    """List every round end that any site missed, once, the oldest first."""
    ends: list[RoundEnd] = []
    for entries in missed.values():
        ends += [end for end in entries if end not in ends]
    return sorted(ends, key=lambda end: (end.round, end.ask))


def catch_up(state: State, sites: Mapping[str, Reply]) -> State:
    """Remove the oldest missed round end of each of the sites."""
    left = {site: ends[1:] if site in sites else ends for site, ends in state.missed.items()}
    return replace(state, missed={site: ends for site, ends in left.items() if ends})


def add_seconds(before: Mapping[str, float], replies: Mapping[str, Reply]) -> dict[str, float]:
    """Add the time that the replies took, by phase."""
    total = dict(before)
    for reply in replies.values():
        for phase, seconds in reply.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total
