"""Define the records of a run's log: the coordinator writes them, analysis reads them.

Each line of `metrics.jsonl` is one record; its field `event` says which kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[int, Field(ge=1)]


def _absent(default: Any) -> Any:
    """Declare a field that is not written while it is empty."""
    return Field(default, exclude_if=lambda value: value in (None, [], {}))


class Record(BaseModel):
    """Validate strictly; ignore fields that this version does not know."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    def __getitem__(self, name: str) -> Any:
        """Read a field by its name, for readers that still treat records as mappings."""
        return getattr(self, name)

    def __contains__(self, name: str) -> bool:
        return getattr(self, name, None) not in (None, {}, [])

    def get(self, name: str, default: Any = None) -> Any:
        """Read a field by its name, or the default where it is absent."""
        value = getattr(self, name, None)
        return default if value in (None, {}, []) else value


class MetricValue(Record):
    """A metric after one round: over all sites' test samples, as the mean over sites, and by site.

    A value is None where no sample defines it.
    """

    mean: float | None
    pooled: float | None
    sites: dict[str, float | None] = {}
    lower_is_better: bool | None = _absent(None)
    """Whether a user's metric is an error; built-in ones are known by their names."""


class CalibrationBins(Record):
    """Test samples (or pixels) by bins of confidence: their number, summed confidence, and correct predictions."""

    count: list[int]
    confidence: list[float]
    correct: list[int]


class EvidenceMeans(Record):
    """Means over test samples that tell how an evidential model behaves; None without test samples."""

    aleatoric: float | None = _absent(None)
    epistemic: float | None = _absent(None)
    zero_evidence: float | None = _absent(None)
    """Share of samples (or pixels) without evidence for any class."""
    class_evidence: list[float] = _absent([])
    """Share of samples (or pixels) with evidence for each class."""
    calibration: CalibrationBins | None = _absent(None)


class SiteSelection(Record):
    """What one site's selection at the end of a round came to."""

    local_model: str = "none"
    """Which local model the strategy saw: the site's `own`, the `global` one if it never trained, or `none`."""
    asked: _Count = 0
    pending: _Count = 0
    rejected: _Count = 0
    """Candidates that the strategy passed over for diversity."""
    filled: _Count = 0
    """Samples taken only because the strategy ran short."""


class Diagnostics(EvidenceMeans):
    """Evidence over all sites' test samples and by site, recall by class, and each site's selection."""

    recall: list[float | None] = _absent([])
    dice_by_class: list[float | None] = _absent([])
    sites: dict[str, EvidenceMeans] = _absent({})
    selection: dict[str, SiteSelection] = {}


class Round(Record):
    """A finished round.

    >>> values = {"mean": 0.5, "pooled": 0.6, "sites": {"alder": 0.5}}
    >>> Round(round=1, labels={"alder": 5}, metrics={"accuracy": values}).metrics["accuracy"].pooled
    0.6
    """

    event: Literal["round"] = "round"
    round: _Number
    labels: dict[str, _Count]
    """Labelled samples that each site trained on."""
    metrics: dict[str, MetricValue]
    diagnostics: Diagnostics = Diagnostics()
    left_out: dict[str, _Count] = {}
    """How many messages each site gave no usable reply to."""
    energy: dict[str, list[int]] = {}
    """Histogram of the test samples' energy at each site."""
    seconds: dict[str, float] = {}
    """Time by phase, summed over sites."""


class Step(Record):
    """A finished communication round; metrics only where the sites were asked for them."""

    event: Literal["step"] = "step"
    round: _Number
    step: _Count = 0
    loss: dict[str, float | None]
    seconds: dict[str, float] = {}
    metrics: dict[str, MetricValue] = _absent({})


class Note(Record):
    """A sentence that was shown to the user."""

    event: Literal["note"] = "note"
    note: str


class LeftOut(Record):
    """A message that a site gave no usable reply to."""

    event: Literal["left_out"] = "left_out"
    round: _Count
    step: _Count
    message: str
    site: str
    reason: str


class Unexpected(Record):
    """Fields or tensors in a reply that were not asked for and are ignored."""

    event: Literal["unexpected"] = "unexpected"
    round: _Count
    step: _Count
    message: str
    site: str
    names: list[str]


Event = Round | Step | Note | LeftOut | Unexpected
KINDS: Mapping[str, type[Event]] = {
    kind.model_fields["event"].default: kind for kind in (Round, Step, Note, LeftOut, Unexpected)
}
