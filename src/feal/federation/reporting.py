"""What a round comes to: its record in the log and in `summary.json`, and sentences for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feal.federation import messages
from feal.federation.journal import State
from feal.federation.querying import label_limit
from feal.federation.statistics import diagnostics, metrics
from feal.selection import short_name, strategy_named
from feal.settings import Settings, Transforms


def opening_notes(settings: Settings, sites: Mapping[str, messages.JoinReply]) -> list[str]:
    """Sentences for the beginning of a run: what of its settings and sites will come to nothing."""
    notes = [*_vain_transforms(settings.transforms)]
    if strategy_named(settings.strategy).everything:
        notes.append(
            f"Strategy {short_name(settings.strategy)} has every sample labelled at once: one round, without "
            "budget and cap, whatever was set."
        )
    untested = [site for site, reply in sites.items() if not reply.test]
    if untested:
        which = f"Site{'s' * (len(untested) > 1)} {', '.join(untested)}"
        notes.append(f"{which} ha{'ve' if len(untested) > 1 else 's'} no test part: no figures come from there.")
    limits = {site: label_limit(settings, samples=reply.pool) for site, reply in sites.items()}
    notes += [
        f"Site {site} may give {limit} labels in all, fewer than the budget of {settings.budget}: "
        "it is asked for no more."
        for site, limit in limits.items()
        if settings.budget != "all" and settings.budget > limit
    ]
    return notes


def _vain_transforms(transforms: Transforms) -> list[str]:
    """A sentence for each setting that nothing heeds."""
    plain, random = Transforms(), ("rotation", "flips", "brightness", "contrast")
    notes = []
    if transforms.crop_rule != plain.crop_rule and not transforms.crop:
        notes.append(f"transforms.crop_rule={transforms.crop_rule} has no effect without transforms.crop.")
    if transforms.probability != plain.probability and not any(getattr(transforms, name) for name in random):
        needed = ", ".join(f"transforms.{name}" for name in random)
        notes.append(f"transforms.probability={transforms.probability:g} has no effect without any of {needed}.")
    return notes


def edited_note(strategy: str, *, round_: int) -> str:
    """The sentence for a strategy whose file is not the one that the run began with."""
    where = strategy.rpartition(":")[0]
    return (
        f"{where} was edited since the run began or went on last: after round {round_} samples are chosen by "
        f"another {short_name(strategy)}. Start a new run for one strategy throughout."
    )


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
