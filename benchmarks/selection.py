"""Selection: time, extra memory, ratio to a plain form and ratio to the bound, strategy by strategy.

One thread, CPU time, medians of interleaved repeats; memory is measured in fresh processes. Nothing is asserted.

    python benchmarks/selection.py [--quick] [--only relax|choosing|observing|growth]
"""

from __future__ import annotations

import argparse

import torch

import choosing
import gradnorm
import growth
import relaxing
import whole_selection

PARTS = {
    "relax": [relaxing.show],
    "choosing": [choosing.show],
    "observing": [whole_selection.show, gradnorm.show],
    "growth": [growth.show],
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
