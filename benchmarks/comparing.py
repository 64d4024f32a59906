"""How long `feal compare` takes over many run directories, imports included.

    python benchmarks/comparing.py [RUNS] [REPEATS]

One small run of five rounds is carried out and copied, with other strategies and seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path
from statistics import median

from feal.config import load
from feal.experiment import start
from timing import format_seconds

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.copies import copied

STRATEGIES = ("random", "entropy", "badge", "coreset", "gradnorm", "tod", "logo", "kafal", "feal", "full")
SMALL = {
    "dataset": {"sites": 2, "train": 80, "test": 16, "classes": 5},
    "rounds": 5,
    "communication_rounds": 2,
    "budget": 5,
    "training.local_epochs": 1,
}
PROGRAM = "from feal.cli import main; main()"


def main(count: int = 200, repeats: int = 7) -> None:
    """Print the median and the longest of some repeats."""
    with tempfile.TemporaryDirectory() as place:
        one = Path(place) / "one"
        start(load("demo", {**SMALL, "strategy": "random"}), out=one)
        for number, (seed, strategy) in enumerate(islice(product(range(count), STRATEGIES), count)):
            budget = "all" if strategy == "full" else SMALL["budget"]
            copied(one, Path(place) / "sweep" / f"{number:04}", seed=seed, strategy=strategy, budget=budget)
        times, busy = [], []
        for _ in range(repeats):
            begin, before = time.perf_counter(), os.times()
            command = [sys.executable, "-c", PROGRAM, "compare", f"{place}/sweep"]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            times.append(time.perf_counter() - begin)
            after = os.times()
            busy.append(
                after.children_user + after.children_system - before.children_user - before.children_system
            )
    print(printed.partition("\n")[0])
    middle, longest, cpu = map(format_seconds, (median(times), max(times), median(busy)))
    print(f"median {middle}, longest {longest}; CPU time {cpu}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
