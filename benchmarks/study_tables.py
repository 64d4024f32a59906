"""Tables of a study over arms and seeds: by round, by class, by run, and differences between arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import Arm, Measure, resolve_measure
from feal.analysis.compare import Summary, subtract_arms, summarize_run
from feal.analysis.outputs import count_found_labels
from feal.analysis.runs import Run
from feal.analysis.stats import labels_to_reach, mean_and_deviation
from feal.errors import FealError

Row = dict[str, Any]
Arms = Mapping[str, Arm]


def make_study(runs: Mapping[str, Sequence[Run]]) -> dict[str, Arm]:
    """Return the arms of runs by name, each with its runs in the order of seeds.

    Raises:
        FealError: runs differ in task, classes or number of rounds, one has no metrics, or a seed occurs twice.
    """
    arms = {
        name: Arm(name=name, runs=tuple(sorted(group, key=lambda run: run.settings.seed)))
        for name, group in runs.items()
    }
    every = [(arm, run) for arm in arms.values() for run in arm.runs]
    for arm, run in every:
        if np.isnan(run.values()).any():
            raise FealError(
                f"Seed {run.settings.seed} of {arm.name} has rounds without metrics: sites need test samples."
            )
        if arm.seeds.count(run.settings.seed) > 1:
            raise FealError(f"Arm {arm.name} has two runs of one seed: use different seeds.")
    if len({(run.task, run.classes, len(run.rounds)) for _, run in every}) > 1:
        raise FealError("The runs differ in task, classes or number of rounds: compare runs of one kind only.")
    return arms


def tabulate_points(arms: Arms) -> list[Row]:
    """Return a row for each arm, seed and round."""
    return [
        {
            "arm": arm.name,
            "seed": run.settings.seed,
            "round": record.round,
            "labels": sum(record.labels.values()),
            "labels_per_site": labels,
            **{f"{name}_pooled": value.pooled for name, value in record.metrics.items()},
            **{f"{name}_mean": value.mean for name, value in record.metrics.items()},
            "zero_evidence": record.diagnostics.zero_evidence,
            **{f"recall_{name}": value for name, value in zip(run.classes, recall, strict=True)},
            **{f"found_{name}": int(value) for name, value in zip(run.classes, found, strict=True)},
            "seconds": sum(record.seconds.values()),
        }
        for arm in arms.values()
        for run in arm.runs
        for record, labels, recall, found in zip(
            run.rounds, run.labels_per_site(), _recall(run), count_found_labels(run), strict=True
        )
    ]


def tabulate_arms_by_round(arms: Arms) -> list[Row]:
    """Return arm x round: labels of a site and the primary metric, pooled and as mean over sites."""
    table = []
    for name, arm in arms.items():
        pooled, deviation = mean_and_deviation([run.values() for run in arm.runs])
        mean, mean_deviation = mean_and_deviation([run.values(over="mean") for run in arm.runs])
        labels, _ = mean_and_deviation([run.labels_per_site() for run in arm.runs])
        for index, record in enumerate(arm.runs[0].rounds):
            table.append(
                {
                    "arm": name,
                    "round": record.round,
                    "labels_per_site": labels[index],
                    "pooled": pooled[index],
                    "pooled_sd": deviation[index],
                    "mean": mean[index],
                    "mean_sd": mean_deviation[index],
                    "n": len(arm.runs),
                }
            )
    return table


def tabulate_classes(arms: Arms) -> list[Row]:
    """Return arm x round x class: recall, and labels (or pixels) found so far with their share of all."""
    table = []
    for arm in arms.values():
        counts = np.array([count_found_labels(run) for run in arm.runs])
        recall, recall_deviation = mean_and_deviation([_recall(run) for run in arm.runs])
        found, found_deviation = mean_and_deviation(counts)
        share, _ = mean_and_deviation(counts / counts.sum(axis=2, keepdims=True))
        for index, record in enumerate(arm.runs[0].rounds):
            for number, name in enumerate(arm.runs[0].classes):
                table.append(
                    {
                        "arm": arm.name,
                        "round": record.round,
                        "class": name,
                        "recall": recall[index, number],
                        "recall_sd": recall_deviation[index, number],
                        "found": found[index, number],
                        "found_sd": found_deviation[index, number],
                        "found_share": share[index, number],
                        "n": len(arm.runs),
                    }
                )
    return table


def tabulate_runs(arms: Arms) -> list[Row]:
    """Return a row for each run: outcome, area under the curve, last value, labels, time."""
    return [
        {
            "arm": arm.name,
            "seed": run.settings.seed,
            **summarize_run(run, _measure(arms))._asdict(),
            "labels_per_site": run.labels_per_site()[-1],
            "seconds": _seconds(run),
        }
        for arm in arms.values()
        for run in arm.runs
    ]


def tabulate_summaries(arms: Arms, *, reference: str) -> list[Row]:
    """Return a row for each arm: its summary, and the labels of a site to reach the last value of `reference`.

    The labels are read off the arm's mean curve; a level that it never reaches leaves them empty.
    """
    level = _mean_curve(arms[reference])[-1] if reference in arms else np.nan
    table = []
    for arm in arms.values():
        means, deviations = mean_and_deviation([summarize_run(run, _measure(arms)) for run in arm.runs])
        row: Row = {"arm": arm.name, "n": len(arm.runs)}
        for name, mean, deviation in zip(Summary._fields, means, deviations, strict=True):
            row |= {name: float(mean), f"{name}_sd": float(deviation)}
        labels, _ = mean_and_deviation([run.labels_per_site() for run in arm.runs])
        row[f"labels_to_{reference}"] = labels_to_reach(labels, _mean_curve(arm), float(level))
        row["seconds"] = float(np.mean([_seconds(run) for run in arm.runs]))
        table.append(row)
    return table


def tabulate_differences(arms: Arms, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """Return a row for each (arm, reference) and number of a summary: the difference over common seeds.

    Pairs without runs or without a common seed are left out, and so are numbers that need more rounds.
    """
    found = [
        subtract_arms(arms[arm], arms[reference], quantity, _measure(arms))
        for arm, reference in pairs
        if arm in arms and reference in arms
        for quantity in Summary._fields
    ]
    return [
        {
            "arm": difference.arm,
            "reference": difference.reference,
            "quantity": difference.quantity,
            "difference": difference.mean,
            "sd": difference.deviation,
            "low": difference.low,
            "high": difference.high,
            "n": difference.pairs,
            "sentence": difference.sentence,
        }
        for difference in found
        if difference is not None
    ]


def _measure(arms: Arms) -> Measure:
    return resolve_measure(list(arms.values()))


def _mean_curve(arm: Arm) -> NDArray[np.float64]:
    return mean_and_deviation([run.values() for run in arm.runs])[0]


def _recall(run: Run) -> NDArray[np.float64]:
    """Recall over all sites' test samples (or pixels), [rounds, classes]; NaN for a class without any."""
    unknown = [None] * len(run.classes)
    return np.array([record.diagnostics.recall or unknown for record in run.rounds], dtype=float)


def _seconds(run: Run) -> float:
    return sum(sum(record.seconds.values()) for record in run.rounds)
