"""Does it matter which samples are labelled? Arms (see arms.py) over paired seeds, and tables of what came out.

    python benchmarks/label_efficiency.py synthetic-lesions --out DIR [-j 2] [--seeds 10] [KEY=VALUE ...]
    python benchmarks/label_efficiency.py synthetic-lesions --out DIR --only-tables
    python benchmarks/label_efficiency.py synthetic-lesions --out DIR --tune

Every arm runs with seeds 0, 1, ..., and runs of one seed begin with the same labels. The outcome, fixed
beforehand, is the mean over rounds 2 to R of pooled balanced accuracy (or mean Dice). Each run lies in
DIR/runs/ARM/seed-N; finished ones are left alone and interrupted ones go on. Tables of the finished ones:

    points.csv        arm x seed x round: every metric
    curves.csv        arm x round: mean, standard deviation, number of runs
    classes.csv       arm x round x class: recall, and labels found so far
    runs.csv          arm x seed: outcome, area under the curve, last value
    arms.csv          the same over seeds, and the labels needed to reach what random-plain reached at last
    differences.csv   to random on the same loss and to random-plain, with bootstrap intervals

--tune looks for each loss's settings: random selection with other seeds (100, ...) on other pictures (synthetic
ones drawn anew; of patients' a validation fold of the training part), so that nothing is chosen by what the
comparison is judged by. It writes tuning.csv; what it found stands in arms.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from arms import ARMS, OTHERS, REFERENCE, Arm, arm_settings, references, trials
from feal.analysis.runs import Run, open_run
from feal.analysis.tables import write_csv
from feal.cli.sweep import SweepProgress
from feal.config import parse
from feal.errors import FealError
from feal.experiment.sweep import SweepRun, run_sweep
from study_tables import (
    make_study,
    tabulate_arms_by_round,
    tabulate_classes,
    tabulate_differences,
    tabulate_points,
    tabulate_runs,
    tabulate_summaries,
)
from timing import print_table

SEEDS, TUNING_SEEDS = 10, 2
FIRST_TUNING_SEED = 100

Jobs = Mapping[Arm, Sequence[SweepRun]]


def compare(jobs: Jobs, out: Path) -> None:
    """Write and print what the finished runs came to."""
    arms = make_study(read_finished(jobs, out))
    whole = tabulate_summaries(arms, reference=REFERENCE)
    apart = tabulate_differences(arms, references())
    write_csv(out / "points.csv", tabulate_points(arms))
    write_csv(out / "curves.csv", tabulate_arms_by_round(arms))
    write_csv(out / "classes.csv", tabulate_classes(arms))
    write_csv(out / "runs.csv", tabulate_runs(arms))
    write_csv(out / "arms.csv", whole)
    write_csv(out / "differences.csv", apart)
    _show(whole)
    print("\n".join(row["sentence"] for row in apart if row["quantity"] == "outcome"))


def tune(jobs: Jobs, out: Path) -> None:
    """Write and print the outcome of everything that was tried, and which is the best of each loss."""
    by_name = make_study(read_finished(jobs, out))
    tried = [key for key in dict.fromkeys(key for arm in jobs for key in arm.overrides) if key not in OTHERS]
    found: list[dict[str, Any]] = []
    for arm in jobs:
        if arm.name not in by_name:
            continue
        [row] = tabulate_summaries({arm.name: by_name[arm.name]}, reference=arm.name)
        silent = np.mean([run.rounds[-1].diagnostics.zero_evidence or 0.0 for run in by_name[arm.name].runs])
        settings = {key: arm.overrides.get(key) for key in tried}
        found.append({"loss": arm.loss, **settings, **row, "zero_evidence": float(silent)})
    for row in found:
        row["best"] = row["outcome"] == max(other["outcome"] for other in found if other["loss"] == row["loss"])
    columns = ("arm", "loss", *tried, "n", "outcome", "outcome_sd", "last", "zero_evidence", "seconds", "best")
    found = [{column: row[column] for column in columns} for row in found]
    write_csv(out / "tuning.csv", found)
    _show(found)


def read_finished(jobs: Jobs, out: Path) -> dict[str, list[Run]]:
    """Read each arm's finished runs, as far as this study goes; an unfinished one would bend its arm's mean."""
    runs = {
        arm.name: [_read_whole(job) for job in group if job.is_finished]
        for arm, group in jobs.items()
        if any(job.is_finished for job in group)
    }
    if not runs:
        raise FealError(f"{out} holds no finished run of these: repeat the command without --only-tables.")
    return runs


def study(options: argparse.Namespace) -> int:
    """Carry out the runs, write the tables; 1 if a run is broken."""
    overrides = parse(options.overrides)
    if options.tune:
        arms: Sequence[Arm] = trials(options.preset, overrides)
        first, count, place = FIRST_TUNING_SEED, options.seeds or TUNING_SEEDS, options.out / "tuning"
    else:
        arms, first, count, place = ARMS, 0, options.seeds or SEEDS, options.out / "runs"
    jobs = {
        arm: [
            SweepRun(place / arm.name / f"seed-{seed:03}", arm_settings(arm, options.preset, overrides, seed=seed))
            for seed in range(first, first + count)
        ]
        for arm in _chosen(arms, options.arms)
    }
    problems = {}
    if not options.only_tables:
        every = [job for group in jobs.values() for job in group]
        with SweepProgress(Console(stderr=True)) as bar:
            bar.announce(every, place, options.processes)
            problems = run_sweep(every, processes=options.processes, callback=bar)
    for folder, problem in problems.items():
        print(f"{folder} is broken: {problem}", file=sys.stderr)
    (tune if options.tune else compare)(jobs, options.out)
    return 1 if problems else 0


def _read_whole(job: SweepRun) -> Run:
    """Read the first rounds: a run that was extended is still finished for a shorter study."""
    run = open_run(job.folder)
    if run.problems:
        raise FealError(f"{run.problems[0]} Restore the file from a copy, or start a new run.")
    return run.cut(job.settings.rounds)


def _chosen(arms: Sequence[Arm], patterns: Sequence[str]) -> list[Arm]:
    chosen = [arm for arm in arms if any(fnmatch(arm.name, pattern) for pattern in patterns)]
    if not chosen:
        raise FealError(f"No arm is called {' or '.join(patterns)}: there are {', '.join(a.name for a in arms)}.")
    return chosen


def _show(found: Sequence[Mapping[str, Any]]) -> None:
    print_table([list(found[0]), *([_cell(value) for value in row.values()] for row in found)])


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> int:
    """The command line: 0, or 1 with broken runs, 2 with a mistake, 130 when interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", help="a preset, or the path of a YAML file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of all runs")
    parser.add_argument("--out", type=Path, required=True, help="folder of runs and tables")
    parser.add_argument("--seeds", type=int, help=f"how many ({SEEDS}; with --tune {TUNING_SEEDS})")
    parser.add_argument("--arms", nargs="+", default=["*"], metavar="PATTERN", help="such as 'random-*'; all")
    parser.add_argument("-j", type=int, default=1, dest="processes", help="runs at a time (1)")
    parser.add_argument("--only-tables", action="store_true", help="from the runs that are there")
    parser.add_argument("--tune", action="store_true", help="look for each loss's settings instead")
    options = parser.parse_intermixed_args()
    try:
        return study(options)
    except FealError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
