"""Why a figure has nothing to show, in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Sequence

from feal.analysis.figures.contract import Figure, shows_patients
from feal.analysis.runs import Run


def why_missing(figure: type[Figure], runs: Sequence[Run], *, pictures: bool) -> str:
    """What the runs lack for a figure that has no data."""
    if shows_patients(figure) and not pictures and runs[0].task == "segmentation":
        return "it shows patients' pictures: make the report again with --pictures to have it."
    needs = getattr(figure, "needs", "a finished round")
    return f"these runs hold nothing for it; it needs {needs}."
