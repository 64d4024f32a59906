"""Define and read the records of a run's log: the coordinator writes them, analysis reads them.

Each line of `metrics.jsonl` is one record; its field `event` says which kind.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[int, Field(ge=1)]


def _absent(default: Any) -> Any:
    """Declare a field that is not written while it is empty."""
    return Field(default, exclude_if=lambda value: value in (None, [], {}, ""))


class Record(BaseModel):
    """Validate strictly; ignore fields that this version does not know."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class MetricValue(Record):
    """A metric after one round: over all sites' test samples, as the mean over sites, and by site.

    A value is None where no sample defines it.
    """

    mean: float | None
    pooled: float | None
    sites: dict[str, float | None] = {}
    lower_is_better: bool | None = _absent(None)
    """Whether a user's metric is an error; built-in ones are known by their names."""
    variant: str = _absent("")
    """The metric's parameters that do not have their defaults, in words such as `rule pooled`."""


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


class GainForecast(Record):
    """What as many labels as the last round's would bring in the next one, by the learning curve so far."""

    metric: str
    labels: float
    """New labels of a site, the mean over sites."""
    gain: float
    low: float
    high: float
    """Ends of the gain's 95 % interval."""
    bound: float
    """The gain is below it with 80 % confidence."""


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
    forecast: GainForecast | None = _absent(None)
    """None before round 3, and where the metric or more labels are missing."""


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
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def read_log(log: Path, *, length: int, classes: int) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Read the records in the committed `length` of a log; return them and a sentence for each unusable line.

    Records of a kind that this version does not know are ignored.

    Args:
        log: the file.
        length: bytes that the run's state vouches for; what a kill left beyond them is ignored.
        classes: number of classes, and so of values by class; 0 where it is not known.
    """
    if not length:
        return (), ()
    try:
        with log.open("rb") as file:
            # A damaged line that grew pushes the last one beyond the length: that one is read to its end.
            content = file.read(length)
            content += b"" if content.endswith(b"\n") else file.readline()
    except OSError as error:
        return (), (f"{log} cannot be read ({error.strerror}): its metrics are missing.",)
    events: list[Event] = []
    problems: list[str] = []
    for number, line in enumerate(content.splitlines(), start=1):
        problem = ""
        try:
            event = _EVENT.validate_json(line)
            problem = _find_round_problem(event, events, classes) if isinstance(event, Round) else ""
            if not problem:
                events.append(event)
        except ValidationError as error:
            if error.errors()[0]["type"] != "union_tag_invalid":
                problem = _describe_error(error)
        if problem:
            problems.append(f"{log}, line {number}: {problem}, so it is left out.")
    if len(content) < length:
        # A damaged line that shrank makes the log shorter, too.
        are = "may be" if problems and content.endswith(b"\n") else "are"
        problems.append(f"{log} is shorter than what was written: its last metrics {are} missing.")
    return tuple(events), tuple(problems)


def _describe_error(error: ValidationError) -> str:
    """Describe the first thing that is wrong with a record."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"][1:]))
    return f"{where} is not valid ({first['msg']})" if where else "no record can be read there"


def _find_round_problem(record: Round, earlier: Sequence[Event], classes: int) -> str:
    if any(isinstance(event, Round) and event.round == record.round for event in earlier):
        return f"round {record.round} occurs a second time"
    recall = record.diagnostics.recall
    if recall and classes and len(recall) != classes:
        return f"diagnostics.recall has {len(recall)} values for {classes} classes"
    return ""
