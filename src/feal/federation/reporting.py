"""What a round comes to: its record in the log and in `summary.json`, and sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feal.federation import messages
from feal.federation.journal import State
from feal.federation.statistics import diagnostics, metrics


def round_record(state: State, replies: Mapping[str, messages.CloseRoundReply]) -> dict[str, Any]:
    """The figures of a round that was closed, by site and over all."""
    by_site = {site: reply.statistics for site, reply in replies.items()}
    selection = {
        site: reply.model_dump(include={"local_model", "asked", "pending", "rejected", "filled"})
        for site, reply in replies.items()
    }
    return {
        "event": "round",
        "round": state.round,
        "labels": dict(state.trained),
        "metrics": metrics(state.task, by_site),
        "diagnostics": {**diagnostics(state.task, by_site), "selection": selection},
        "left_out": dict(sorted(state.left_out.items())),
        "energy": {site: statistics.energy for site, statistics in by_site.items() if statistics},
        "seconds": add_seconds(state.seconds, replies),
    }


def add_seconds(before: Mapping[str, float], replies: Mapping[str, messages.Reply]) -> dict[str, float]:
    """Time by phase, with what the replies took."""
    total = dict(before)
    for reply in replies.values():
        for phase, seconds in reply.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


def stand_in_notes(round_: int, replies: Mapping[str, messages.CloseRoundReply]) -> list[str]:
    """A sentence where the models of an earlier round were wanted and there is none yet."""
    if not any(reply.previous_model == "initial" for reply in replies.values()):
        return []
    return [f"Round {round_}: the initial model stands in for the models of the round before in the selection."]


def evidence_notes(round_: int, replies: Mapping[str, messages.CloseRoundReply]) -> list[str]:
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
