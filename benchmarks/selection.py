"""Selection: time, extra memory, ratio to a plain form and ratio to the bound, strategy by strategy.

One thread, CPU time, medians of interleaved repeats; memory is measured in fresh processes. Nothing is asserted.

    python benchmarks/selection.py [--quick] [--only relaxation|choice|observation|growth|coverage]
"""

from __future__ import annotations

import argparse

import torch

import choice
import observation
import relaxation

PARTS = {
    "relaxation": [relaxation.show],
    "choice": [choice.show_choice],
    "observation": [observation.show_selection, observation.show_gradients],
    "growth": [choice.show_growth],
    "coverage": [choice.show_coverage],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="smaller pools and fewer repeats")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("CPU time, one thread\n")
    for part in [options.only] if options.only else PARTS:
        for show in PARTS[part]:
            show(quick=options.quick)


if __name__ == "__main__":
    main()
