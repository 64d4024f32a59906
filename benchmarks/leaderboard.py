"""Run the studies of studies.py, and write what they came to: docs/leaderboard.md and docs/leaderboard.csv.

    python benchmarks/leaderboard.py --out DIR [-j 2] [--studies isic-vit wbc-vit ...] [--only-tables]

Every run lies in DIR/STUDY/ARM/seed-N; finished ones are left alone and interrupted ones go on, so the same
command continues and rebuilds. The prepared sets are fed-isic and fed-polyp at 224 pixels, wbc and wbc-seg, see
docs/leaderboard.md. The outcome, fixed beforehand, is the mean over rounds 2 to R of pooled balanced accuracy (or
Dice); each arm is compared, seed by seed, with random on the same encoder, head, loss and first labels. Intervals
are bootstrapped over seeds; p-values are of Student's paired test, corrected by Holm within a study.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from feal.analysis.outputs import read_discrimination
from feal.analysis.runs import Run, open_run
from feal.analysis.stats import labels_to_reach, paired_difference
from feal.analysis.tables import write_csv
from feal.cli.sweep import SweepProgress
from feal.config import load
from feal.errors import FealError
from feal.experiment.sweep import SweepRun, run_sweep
from studies import PRESET, STUDIES, Study

DOCS = Path(__file__).parent.parent / "docs"
Runs = Mapping[str, Mapping[int, Run]]


def list_runs(name: str, study: Study, out: Path) -> list[tuple[str, int, SweepRun]]:
    """Return every run of a study with its arm and seed."""
    return [
        (
            arm,
            seed,
            SweepRun(_folder(out, name, arm, seed), load(PRESET, {**study.base, **entry.overrides, "seed": seed})),
        )
        for arm, entry in study.arms.items()
        for seed in range(entry.seeds or study.seeds)
    ]


def _folder(out: Path, study: str, arm: str, seed: int) -> Path:
    return out / study / arm.replace(", ", "-") / f"seed-{seed:03}"


def read_runs(name: str, study: Study, out: Path) -> Runs:
    """Return the finished runs of each arm by seed."""
    found: dict[str, dict[int, Run]] = {}
    for arm, seed, job in list_runs(name, study, out):
        if job.is_finished:
            found.setdefault(arm, {})[seed] = open_run(job.folder)
    return found


def tabulate(name: str, study: Study, runs: Runs) -> list[dict[str, Any]]:
    """Return a row for each arm: curve, difference to its reference, labels to the reference's level."""
    from scipy.stats import ttest_rel

    rows: list[dict[str, Any]] = []
    for arm, entry in study.arms.items():
        own, others = runs.get(arm, {}), runs.get(entry.reference, {})
        seeds = sorted(own.keys() & others.keys())
        if not seeds:
            continue
        curves = np.array([own[seed].values() for seed in seeds])
        base = np.array([others[seed].values() for seed in seeds])
        outcome, reference = (_outcomes(values, study) for values in (curves, base))
        labels = np.mean([own[seed].labels_per_site() for seed in seeds], axis=0)
        row: dict[str, Any] = {"study": name, "arm": arm, "reference": entry.reference, "n": len(seeds)}
        row |= {f"round_{number + 1}": value for number, value in enumerate(curves.mean(axis=0))}
        row |= {f"labels_{number + 1}": value for number, value in enumerate(labels)}
        row |= {"outcome": outcome.mean(), "outcome_sd": outcome.std(ddof=1) if len(seeds) > 1 else np.nan}
        row |= _last_metrics([own[seed] for seed in seeds])
        row["seconds"] = float(np.mean([_seconds(own[seed]) for seed in seeds]))
        if arm != entry.reference:
            apart = paired_difference(outcome, reference)
            row |= {"difference": apart.mean, "low": apart.low, "high": apart.high}
            row["better_in"] = int((outcome > reference).sum())
            row["p"] = float(ttest_rel(outcome, reference).pvalue) if len(seeds) > 1 else np.nan
        if curves.shape[1] > 1:
            row["labels_to_reach"] = labels_to_reach(labels, curves.mean(axis=0), float(base.mean(axis=0)[-1]))
        rows.append(row)
    correct_by_holm(rows)
    return rows


def correct_by_holm(rows: Sequence[dict[str, Any]]) -> None:
    """Add `p_holm` to rows that have a p-value: the smallest times their number, the next times one less, ..."""
    tested = sorted((row for row in rows if np.isfinite(row.get("p", np.nan))), key=lambda row: row["p"])
    largest = 0.0
    for index, row in enumerate(tested):
        largest = max(largest, min(1.0, row["p"] * (len(tested) - index)))
        row["p_holm"] = largest


def render(rows: Sequence[Mapping[str, Any]], study: Study) -> list[str]:
    """Return a study's table as lines of Markdown, best outcome first."""
    rounds = sum(key.startswith("round_") for key in rows[0])
    metric = "Dice" if "hd95" in rows[0] else "balanced accuracy"
    more = ["HD95"] if metric == "Dice" else ["accuracy", "AUC"]
    seeds = sorted({row["n"] for row in rows})
    many = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
    head = ["arm", *(f"r{number}" for number in range(1, rounds + 1)), "minus random [95 %]", "up in", "p (Holm)"]
    head += ["labels", *more, "s"]
    curve_of = "r1" if rounds == 1 else f"r1 to r{rounds}"
    lines = [f"## {study.title}", "", f"{many} report seeds; {curve_of}: {metric}, pooled.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in sorted(rows, key=lambda row: -row["outcome"]):
        is_reference = row["arm"] == row["reference"]
        curve = [_short(row[f"round_{number}"]) for number in range(1, rounds + 1)]
        apart = "-" if is_reference else f"{row['difference']:+.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        wins = "-" if is_reference else f"{row['better_in']} of {row['n']}"
        p = "-" if is_reference else f"{row['p_holm']:.3f}" if row["p_holm"] >= 0.001 else "< .001"
        needed = row.get("labels_to_reach", np.nan)
        last = [f"{row['hd95']:.1f}"] if metric == "Dice" else [_short(row["accuracy"]), _short(row["roc_auc"])]
        cells = [row["arm"], *curve, apart, wins, p, f"{needed:.0f}" if np.isfinite(needed) else "-", *last]
        lines.append("| " + " | ".join([*cells, f"{row['seconds']:.1f}"]) + " |")
    return [*lines, "", *study.notes]


def write_page(tables: Mapping[str, Sequence[dict[str, Any]]], introduction: Path) -> None:
    """Write the page: the introduction as it stands up to the first table, then every study."""
    marker = "<!-- tables -->"
    text = introduction.read_text().partition(marker)[0] if introduction.exists() else ""
    lines = [line for name, rows in tables.items() for line in render(rows, STUDIES[name])]
    introduction.write_text(f"{text}{marker}\n\n" + "\n".join(lines).rstrip() + "\n")
    every = [row for rows in tables.values() for row in rows]
    columns = list(dict.fromkeys(key for row in every for key in row))
    write_csv(DOCS / "leaderboard.csv", [{key: row.get(key, "") for key in columns} for row in every])


def draw(tables: Mapping[str, Sequence[dict[str, Any]]], path: Path) -> None:
    """Draw the learning curves of random and of the recommended recipe on each classification set, as SVG."""
    import altair as alt

    names = {"isic-vit": "skin lesions, four centres", "wbc-vit": "white blood cells, four laboratories"}
    points = [
        {
            "set": names[study],
            "labels": row[f"labels_{number}"],
            "balanced accuracy": row[f"round_{number}"],
            "selection": row["arm"],
        }
        for study in names
        for row in tables.get(study, ())
        if row["arm"] in ("random", "recommended")
        for number in range(1, sum(key.startswith("round_") for key in row) + 1)
    ]
    if not points:
        return
    chart = (
        alt.Chart(alt.InlineData(values=points))
        .mark_line(point=alt.OverlayMarkDef(size=50), strokeWidth=2.5)
        .encode(
            x=alt.X("labels:Q", title="labels of a site"),
            y=alt.Y("balanced accuracy:Q", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "selection:N",
                title=None,
                scale=alt.Scale(domain=["recommended", "random"], range=["#0072b2", "#767676"]),
            ),
            shape=alt.Shape("selection:N", title=None, scale=alt.Scale(domain=["recommended", "random"])),
        )
        .properties(width=300, height=200)
        .facet(column=alt.Column("set:N", title=None))
        .resolve_scale(x="independent", y="independent")
        .configure(background="white", font="sans-serif")
    )
    chart.save(str(path))


def _outcomes(curves: NDArray[np.float64], study: Study) -> NDArray[np.float64]:
    values: NDArray[np.float64] = curves[:, 0] if study.first_round else curves[:, 1:].mean(axis=1)
    return values


def _last_metrics(runs: Sequence[Run]) -> dict[str, float]:
    """Return the means over seeds of the last round's other metrics."""
    if runs[0].task == "segmentation":
        return {"hd95": float(np.mean([run.rounds[-1].metrics["hd95"].pooled or np.nan for run in runs]))}
    accuracy = [run.rounds[-1].metrics["accuracy"].pooled or 0.0 for run in runs]
    areas = [found[-1].pooled for run in runs if (found := read_discrimination(run.path))]
    known = [area for area in areas if area is not None]
    return {"accuracy": float(np.mean(accuracy)), "roc_auc": float(np.mean(known)) if known else np.nan}


def _seconds(run: Run) -> float:
    return sum(sum(record.seconds.values()) for record in run.rounds)


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def main() -> int:
    """The command line: 0, or 1 with broken runs, 2 with a mistake, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of runs")
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES), help="which; all")
    parser.add_argument("-j", type=int, default=1, dest="processes", help="runs at a time (1)")
    parser.add_argument("--only-tables", action="store_true", help="from the runs that are there")
    options = parser.parse_args()
    try:
        problems: dict[Path, str] = {}
        if not options.only_tables:
            jobs = [job for name in options.studies for _, _, job in list_runs(name, STUDIES[name], options.out)]
            with SweepProgress(Console(stderr=True)) as bar:
                bar.announce(jobs, options.out, options.processes)
                problems = run_sweep(jobs, processes=options.processes, callback=bar)
        found = {name: read_runs(name, STUDIES[name], options.out) for name in options.studies}
        tables = {name: rows for name, runs in found.items() if (rows := tabulate(name, STUDIES[name], runs))}
        write_page(tables, DOCS / "leaderboard.md")
        draw(tables, DOCS / "leaderboard.svg")
    except FealError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130
    for folder, problem in problems.items():
        print(f"{folder} is broken: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
