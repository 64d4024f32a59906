"""What replies add up to: labels, class counts, weights, and who was left out; pure functions of the state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from feal.federation import messages
from feal.federation.aggregation import fedavg
from feal.federation.exchange import Replies
from feal.federation.journal import Closing, State, Weights

Labelling = messages.CloseRoundReply | messages.LabelsReply
"""Replies that say how many labels were asked for and answered."""


def counted(state: State, replies: Replies[Any]) -> State:
    """The state with what the replies say of labels, and with one more for every site that was left out."""
    good: Mapping[str, messages.TrainReply | Labelling] = replies.good
    left_out = {**state.left_out}
    for site in replies.left_out:
        left_out[site] = left_out.get(site, 0) + 1
    return replace(
        state,
        class_counts={**state.class_counts, **{site: reply.class_counts for site, reply in good.items()}},
        labels={**state.labels, **{site: reply.labelled for site, reply in good.items()}},
        left_out=left_out,
    )


def total_counts(state: State) -> list[int] | None:
    """Class counts over the sites that share theirs; None where no site does."""
    shared = [counts for counts in state.class_counts.values() if counts is not None]
    return [sum(column) for column in zip(*shared, strict=True)] if shared else None


def averaged(before: Weights, replies: Mapping[str, messages.TrainReply]) -> Weights:
    """The mean of what sites with labels have trained, by their numbers of labels; `before` if none has."""
    trained = [reply for reply in replies.values() if reply.weights is not None and reply.labelled]
    if not trained:
        return before
    return fedavg([reply.weights or {} for reply in trained], [reply.labelled for reply in trained])


def enough_answered(replies: Mapping[str, Labelling], *, share: float, sites: int) -> bool:
    """Whether so many sites have that share of what was asked of them."""
    ready = [at_least(share, reply.asked) <= reply.asked - reply.pending for reply in replies.values()]
    return sum(ready) >= sites


def at_least(share: float, number: int) -> int:
    """The smallest count that is no less than a share of a number.

    >>> at_least(0.7, 10), at_least(0.5, 3), at_least(1.0, 4)
    (7, 2, 4)
    """
    # Shares such as 0.7 are a little above themselves in binary, which must not cost one more.
    return math.ceil(round(share * number, 9))


def missed_in_order(missed: Mapping[str, Sequence[Closing]]) -> list[Closing]:
    """Every end of a round that anybody missed, once, the oldest first."""
    entries: list[Closing] = []
    for closings in missed.values():
        entries += [closing for closing in closings if closing not in entries]
    return sorted(entries, key=lambda closing: (closing.round, closing.ask))
