"""Why a figure has nothing to show, in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from feal.analysis.figures.contract import Figure, shows_patients
from feal.analysis.runs import Run

_SITES_OWN = "it needs what sites keep of single samples: run with diagnostics=true, in simulation"
_NEEDS = {
    "relaxation": "only feal passes samples over: add runs of strategy=feal with two rounds at least.",
    "simplex-rounds": f"{_SITES_OWN}, for classification with three classes or more.",
    "simplex-strategies": f"{_SITES_OWN}, for classification with three classes or more and two rounds.",
    "uncertainty-maps": f"{_SITES_OWN}, for segmentation with two rounds at least.",
    "energy": "it needs test samples at two sites or more: prepare the data with a test part.",
}


def why_missing(name: str, figure: type[Figure], runs: Sequence[Run], *, pictures: bool) -> str:
    """What the runs lack for a figure that has no data."""
    if shows_patients(figure) and not pictures and runs[0].task == "segmentation":
        return "it shows patients' pictures: make the report again with --pictures to have it."
    if not any(run.rounds for run in runs):
        return "no round is finished yet: come back when one is."
    return _NEEDS.get(name, "the runs' records hold nothing for it: runs of this version with test samples do.")
