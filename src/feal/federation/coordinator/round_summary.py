"""Summarize a round: its record for the log, and notes for the user."""

from collections.abc import Mapping, Sequence

from feal.federation import protocol as messages
from feal.federation.coordinator.stopping import forecast_gain
from feal.metrics import Metric, Statistics, compute_metrics
from feal.metrics.statistics import compute_diagnostics
from feal.models import find_model
from feal.plugins import short_name
from feal.rundir.journal import State
from feal.rundir.records import Diagnostics, MetricValue, Round, SiteSelection, Step
from feal.selection import find_strategy
from feal.settings import Settings, Transforms, ceil_share


def opening_notes(settings: Settings, sites: Mapping[str, messages.JoinReply]) -> list[str]:
    """List what of a run's settings and sites will have no effect, for its start."""
    notes = _unused_transform_notes(settings.transforms)
    if find_strategy(settings.strategy.name).is_full_supervision:
        notes.append(
            f"Strategy {short_name(settings.strategy.name)} labels every sample at once: there is one round, and "
            "budget and max_labelled_fraction have no effect."
        )
    has_norms = find_model(settings.model.name).imagenet_weights is not None  # the deep ones, with batch norm
    if has_norms and settings.weights == "none" and settings.training.batch_norm == "running":
        notes.append(
            f"{settings.model.name} starts from random weights: running statistics of batch norm evaluate it "
            "near chance for hundreds of batches; training.batch_norm=recompute or weights=imagenet helps."
        )
    untested = [site for site, reply in sites.items() if not reply.test]
    if untested:
        which = f"Site{'s' * (len(untested) > 1)} {', '.join(untested)}"
        notes.append(f"{which} ha{'ve' if len(untested) > 1 else 's'} no test samples, so no metrics.")
    limits = {site: ceil_share(settings.max_labelled_fraction, reply.pool) for site, reply in sites.items()}
    notes += [
        f"Site {site} can be asked for {limit} labels in total, fewer than the budget of {settings.budget}."
        for site, limit in limits.items()
        if settings.budget != "all" and settings.budget > limit
    ]
    return notes


def _unused_transform_notes(transforms: Transforms) -> list[str]:
    """List transform settings that have no effect without another one."""
    plain, random = Transforms(), ("rotation", "flips", "brightness", "contrast")
    notes = []
    if transforms.crop_rule != plain.crop_rule and not transforms.crop:
        notes.append(f"transforms.crop_rule={transforms.crop_rule} has no effect without transforms.crop.")
    if transforms.probability != plain.probability and not any(getattr(transforms, name) for name in random):
        needed = ", ".join(f"transforms.{name}" for name in random)
        notes.append(f"transforms.probability={transforms.probability:g} has no effect without any of {needed}.")
    return notes


def edited_strategy_note(strategy: str, *, round_: int) -> str:
    """Describe that the file of a user-defined strategy changed since the run was started."""
    where = strategy.rpartition(":")[0]
    return (
        f"{where} was edited since the run was started or last resumed: from round {round_ + 1} on samples are "
        f"selected by another {short_name(strategy)}. Start a new run to use one strategy throughout."
    )


def step_record(state: State, replies: Mapping[str, messages.TrainReply], *, metrics: Sequence[Metric]) -> Step:
    """Summarize a communication round; with metrics where the sites were asked for them."""
    tested = {site: reply.statistics for site, reply in replies.items()}
    return Step(
        round=state.round,
        step=state.step,
        loss={site: reply.loss for site, reply in replies.items()},
        seconds=add_seconds({}, replies),
        metrics=metric_values(metrics, tested) if any(tested.values()) else {},
    )


def metric_values(metrics: Sequence[Metric], by_site: Mapping[str, Statistics | None]) -> dict[str, MetricValue]:
    """Compute every metric of a run by site, as the mean over sites, and pooled."""
    return {name: MetricValue.model_validate(values) for name, values in compute_metrics(metrics, by_site).items()}


def round_record(
    state: State,
    replies: Mapping[str, messages.CloseRoundReply],
    *,
    metrics: Sequence[Metric],
    earlier: Sequence[Round] = (),
) -> Round:
    """Summarize a round that was closed, by site and over all sites; with those before, it has a forecast."""
    by_site = {site: reply.statistics for site, reply in replies.items()}
    fields = set(SiteSelection.model_fields)
    selection = {site: SiteSelection(**reply.model_dump(include=fields)) for site, reply in replies.items()}
    record = Round(
        round=state.round,
        labels=state.trained,
        metrics=metric_values(metrics, by_site),
        diagnostics=Diagnostics.model_validate(
            {**compute_diagnostics(state.task, by_site), "selection": selection}
        ),
        left_out=dict(sorted(state.left_out.items())),
        energy={site: statistics.energy for site, statistics in by_site.items() if statistics},
        seconds=add_seconds(state.seconds, replies),
    )
    return record.model_copy(update={"forecast": forecast_gain([*earlier, record], state.task, by_site)})


def add_seconds(before: Mapping[str, float], replies: Mapping[str, messages.Reply]) -> dict[str, float]:
    """Add the time that the replies took, by phase."""
    total = dict(before)
    for reply in replies.values():
        for phase, seconds in reply.seconds.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total


def closing_notes(round_: int, replies: Mapping[str, messages.CloseRoundReply], *, loss: str) -> list[str]:
    """Describe what the user should know of a round: a model without any evidence, a missing earlier model."""
    notes = []
    silent = [
        site
        for site, reply in replies.items()
        if reply.statistics is not None and reply.statistics.zero_evidence == reply.statistics.samples
    ]
    if silent and loss == "evidential":
        notes.append(
            f"Round {round_}: the global model assigns zero evidence to every test sample of {', '.join(silent)}, "
            "so uncertainty cannot rank them; a larger training.lr or loss.activation=exp helps."
        )
    if any(reply.previous_model == "initial" for reply in replies.values()):
        notes.append(
            f"Round {round_}: the selection uses the initial model in place of the previous round's models."
        )
    return notes
