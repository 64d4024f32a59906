"""Define the settings of an experiment: the schema, validated and immutable.

What only a strategy, a loss, a network, a data set, an annotator or a transport reads is a parameter of that
class, see `Component`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Task = Literal["classification", "segmentation"]
ClassCountScope = Literal["global", "site"]
Trainable = Literal["all", "tail", "head"]
InitialLabels = Literal["random", "dataset", "farthest", "maxherding", "centroids"]


class Section(BaseModel):
    """Hold a part of the settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


class Training(Section):
    """How a site trains in one communication round."""

    lr: float = Field(5e-4, gt=0, le=100, description="Adam's learning rate")
    batch_size: Positive = Field(32, description="samples in a training batch")
    local_epochs: Positive = Field(1, description="passes over the labelled samples in one communication round")
    weight_decay: float = Field(0.0, ge=0, description="Adam's weight decay")
    schedule: Literal["half", "none"] = Field(
        "half", description="half: a tenth of the learning rate from half of the communication rounds on"
    )
    batch_norm: Literal["running", "recompute"] = Field(
        "running",
        description="statistics of batch norm for evaluation: running averages of training, or computed over the "
        "labelled samples after it; a network from random weights needs that for its first hundreds of batches",
    )
    trainable: Trainable = Field(
        "all", description="what is trained: the network, its last stage, or its last layer; the rest is frozen"
    )
    views: Annotated[int, Field(ge=1, le=8)] = Field(
        4, description="under trainable tail or head: flips and crops of each image that the frozen part looks at"
    )


class Transforms(Section):
    """How training images are augmented, drawn each time an image is read, and how all images are normalised."""

    probability: float = Field(0.5, ge=0, le=1, description="of each transform except the crop, for each image")
    rotation: float = Field(
        0.0, ge=0, le=180, description="largest angle in degrees, in either direction; the border is reflected"
    )
    flips: bool = Field(False, description="flip left to right, top to bottom or both, each as likely")
    brightness: float = Field(0.0, ge=0, le=1, description="largest value added, as a share of the range")
    contrast: float = Field(
        0.0,
        ge=0,
        le=1,
        description="largest change of the factor that values are multiplied by; drawn together with brightness",
    )
    crop: int = Field(0, ge=0, description="height and width of the crop; 0: the whole image")
    crop_rule: Literal["centre", "foreground", "middle", "random"] = Field(
        "random",
        description="which part: the centre (classification: in evaluation too), one that shows foreground, "
        "one with offsets in the middle half of the gap, or any",
    )
    normalise: Literal["none", "imagenet", "maximum"] = Field(
        "none",
        description="in training and evaluation: ImageNet's mean and deviation, or division by an image's maximum",
    )


class SelectionSettings(Section):
    """How much of the pool is looked at, and in what steps, whatever the strategy."""

    batch_size: Positive | Literal["auto"] = Field(
        "auto", description="samples in a batch of evaluation and selection; auto: 2**19 pixels, 64 at most"
    )
    candidates: Positive | Literal["all"] = Field("all", description="look at a random part of the pool only")


class Component(BaseModel):
    """Name a strategy, loss, network, data set, annotator or transport, with values of its parameters.

    The class of that name checks the parameters, see `feal.plugins.read_params`.

    >>> Component.model_validate("feal") == Component(name="feal")
    True
    >>> Component.model_validate({"name": "feal", "tau": 0.9}).params
    {'tau': 0.9}
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @property
    def params(self) -> dict[str, Any]:
        """The parameters, by the names that users write."""
        return dict(self.model_extra or {})


def _as_tuple(value: object) -> object:
    """Accept one name in place of a list of names."""
    return (value,) if isinstance(value, str) else value


class Settings(Section):
    """Hold an experiment; `dump()` is what `config.yaml` has."""

    dataset: Component = Field(
        description="a data set: its name, the path of a prepared folder, or file.py:Class; with its parameters"
    )
    data: str | None = Field(None, description="folder of prepared data sets; $FEAL_DATA or the cache otherwise")
    sites: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="sites of the data set that take part; all by default"
    )
    validation: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="tuning: evaluate on this fraction of the training data, split by patient; "
        "the test data are not used",
    )
    redraw_test: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="studies: draw this fraction of a site's samples as test data by the seed, split by patient; "
        "the data set's own split is not used",
        exclude_if=lambda value: value is None,
    )
    model: Component = Field(description="a network: its name or file.py:Class; with its parameters")
    weights: str = Field(
        "none", description="what the network starts from: none (random weights), imagenet, or a file of weights"
    )
    weights_digest: str | None = Field(None, description="which weights these are; recorded when a run starts")
    strategy: Component = Field(
        Component(name="feal"),
        description="which samples to label next: a name or file.py:Class; with its parameters",
    )
    loss: Component | None = Field(
        None, description="training loss, with its parameters; the strategy's own by default"
    )
    class_count_scope: ClassCountScope | None = Field(
        None,
        description="class counts that losses and strategies use: of all sites, or of the site alone; "
        "by default all sites' for the balanced loss and the site's for class weights",
    )
    share_class_counts: bool = Field(
        True, description="let a site's class counts reach the coordinator, which sums them"
    )
    metrics: Annotated[tuple[str, ...], BeforeValidator(_as_tuple)] = Field(
        (), description="more metrics than the built-in ones: file.py:Class each"
    )
    metric: dict[str, dict[str, Any]] = Field(
        {},
        description="parameters of metrics below the metric's name, such as metric.hd95.rule",
        exclude_if=lambda value: not value,
    )
    annotator: Component = Field(Component(name="oracle"), description="who labels; with its parameters")
    transport: Component = Field(
        Component(name="in-process"), description="what carries messages to the sites; with its parameters"
    )
    allow_single_class: bool = Field(False, description="accept a site all of whose samples are of one class")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where networks run")
    threads: Positive = Field(1, description="threads of a site's computation; part of what makes bits equal")
    seed: int = Field(0, ge=0, description="seed of every random draw of the run")
    rounds: Positive = Field(5, description="active-learning rounds")
    stop_below: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="end the run once the next round is unlikely to bring this much of the primary metric: from "
        "round 3 on, when the one-sided 80 % bound of the gain that the learning curve predicts is below it",
        exclude_if=lambda value: value is None,
    )
    communication_rounds: Positive = Field(100, description="communication rounds in an active-learning round")
    # Strict, as 1.0 (all?) and true would otherwise pass for one label.
    budget: (
        Annotated[int, Field(ge=1, strict=True)]
        | Annotated[float, Field(gt=0, lt=1, strict=True)]
        | Literal["all"]
    ) = Field(500, description="labels a site may ask for in a round: a number, a fraction of its samples, or all")
    max_labelled_fraction: Share = Field(0.85, description="fraction of a site's samples to label at most, in all")
    initial_labels: InitialLabels = Field(
        "random",
        description="where the first labels come from: random samples, those labelled in the data set, or, under "
        "model=frozen, samples that cover the features: farthest-first, maxherding, or those next to centroids",
    )
    restart: bool = Field(True, description="start every round from the initial weights")
    participation: Share = Field(1.0, description="fraction of the sites that train in a communication round")
    quorum: Positive | None = Field(None, description="sites that must answer for a round to count; default: all")
    round_timeout: Annotated[float, Field(gt=0, le=30 * 24 * 3600)] | None = Field(
        None, description="seconds a site may take for one message before the round goes on without it"
    )
    evaluate_every: int = Field(
        0, ge=0, description="communication rounds between evaluations inside a round; 0: none"
    )
    diagnostics: bool | Literal["all"] = Field(
        True, description="store at the site what later analysis needs; all: of the last round's pool, too"
    )
    training: Training = Training()
    transforms: Transforms = Transforms()
    selection: SelectionSettings = SelectionSettings()

    @property
    def query_model(self) -> str | None:
        """The model that the strategy queries; None for a strategy without the choice."""
        return self.strategy.params.get("query_model")

    @property
    def loss_name(self) -> str:
        """The name of the training loss."""
        return self.loss.name if self.loss else "plain"

    @property
    def redraw(self) -> tuple[float, int] | None:
        """The fraction of samples that are test data and the seed that draws them; None for the data set's own."""
        return None if self.redraw_test is None else (self.redraw_test, self.seed)

    def dump(self) -> dict[str, Any]:
        """Return the settings as plain JSON values, under the names users write."""
        return self.model_dump(mode="json", by_alias=True)

    def identity(self) -> str:
        """Return a hash of what the run computes: all settings but the operational ones."""
        decisive = {key: value for key, value in flatten(self.dump()).items() if not is_operational(key)}
        canonical = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted names.

    >>> flatten({"seed": 1, "training": {"lr": 0.1}})
    {'seed': 1, 'training.lr': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted names as nested ones: the inverse of `flatten`.

    >>> nest({"seed": 1, "training.lr": 0.1})
    {'seed': 1, 'training': {'lr': 0.1}}
    """
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *sections, name = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return nested


OPERATIONAL = (
    "rounds",
    "stop_below",
    "transport",
    "data",
    "dataset.source",
    "quorum",
    "round_timeout",
    "annotator.min_share",
    "annotator.poll_seconds",
)
"""Settings that may change while a run is under way: how far it goes, what carries it, how long it waits."""


def is_operational(key: str) -> bool:
    """Return whether a setting, by its dotted name, changes nothing of what a run computes.

    >>> [is_operational(key) for key in ("rounds", "transport.workers", "seed")]
    [True, True, False]
    """
    return any(key == name or key.startswith(f"{name}.") for name in OPERATIONAL)


def ceil_share(share: float, number: int) -> int:
    """Return the smallest count that is no less than a share of a number.

    >>> ceil_share(0.7, 10), ceil_share(0.5, 3), ceil_share(1.0, 4)
    (7, 2, 4)
    """
    # Shares such as 0.7 are a little above themselves in binary, which must not cost one more.
    return math.ceil(round(share * number, 9))
