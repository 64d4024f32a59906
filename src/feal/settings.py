"""Everything an experiment can be told, as one validated and immutable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(gt=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Term = Literal["epistemic-global", "aleatoric-global", "aleatoric-local"]
Task = Literal["classification", "segmentation"]
Loss = Literal["evidential", "plain", "balanced"]
QueryModel = Literal["global", "local", "ensemble"]
Counts = Literal["global", "site"]
Trainable = Literal["all", "tail", "head"]


class Section(BaseModel):
    """A part of the settings: unknown keys are refused, values never change."""

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
    trainable: Trainable = Field(
        "all", description="what is trained: the network, its last stage, or its last layer; the rest is frozen"
    )
    views: Annotated[int, Field(ge=1, le=8)] = Field(
        4, description="under trainable tail or head: flips and crops of each image that the frozen part looks at"
    )


class Transforms(Section):
    """What training images go through, drawn anew at every look; and how all images are normalised."""

    probability: float = Field(0.5, ge=0, le=1, description="of each transform but the crop, for each image")
    rotation: float = Field(0.0, ge=0, le=180, description="degrees to either side, at most")
    flips: bool = Field(False, description="left to right, and top to bottom")
    brightness: float = Field(0.0, ge=0, le=1, description="largest change of the brightness, as a share of it")
    contrast: float = Field(0.0, ge=0, le=1, description="the same of the contrast")
    crop: int = Field(0, ge=0, description="height and width that are cut out; 0: the whole image")
    crop_rule: Literal["centre", "foreground", "middle", "random"] = Field(
        "random",
        description="which part: the centre (classification: in evaluation too), one that shows foreground, "
        "one with offsets in the middle half of the gap, or any",
    )
    normalise: Literal["none", "imagenet", "maximum"] = Field(
        "none",
        description="in training and evaluation: ImageNet's mean and deviation, or division by an image's maximum",
    )


class Evidence(Section):
    """The Dirichlet model and its loss."""

    lambda_: float = Field(1e-2, ge=0, alias="lambda", description="weight of the evidence regulariser")
    activation: Literal["relu", "softplus", "exp"] = Field("relu", description="logits to evidence")
    annealing: Positive | Literal["none"] = Field(
        10, description="communication rounds over which the regulariser's KL term grows to full weight"
    )
    squared: bool | None = Field(None, description="square the concentration; by default for segmentation only")
    class_weight: Literal["none", "prior", "inverse"] = Field(
        "prior", description="class weights: 1, 2 - class prior, or inverse class frequency (at most 5)"
    )


class Selection(Section):
    """How the samples to label are chosen."""

    n: Positive = Field(5, description="neighbours that the diversity relaxation looks at")
    tau: float = Field(0.85, ge=-1, le=1, description="cosine similarity from which samples are neighbours")
    rule: Literal["nearest", "all", "none"] = Field(
        "nearest",
        description="nearest: the authors' code; all: the paper's Algorithm 1; none: plain top budget",
    )
    calibration: Literal["minmax", "literal"] = Field(
        "minmax",
        description="epistemic factor mapped to [0, 1] over the pool, or the paper's equation as it stands",
    )
    terms: tuple[Term, ...] = Field(
        ("epistemic-global", "aleatoric-global", "aleatoric-local"),
        min_length=1,
        description=f"terms of the calibrated uncertainty (ablation): {', '.join(get_args(Term))}",
    )
    scope: Literal["all", "head"] = Field(
        "all", description="gradnorm: gradients of all parameters, or of the last layer (by a closed form)"
    )
    local: Literal["federated", "local_only"] = Field(
        "federated", description="logo's local model: that of the last round, or one trained on this site alone"
    )
    batch_size: Positive = Field(64, description="samples in a batch of evaluation and selection")
    candidates: Positive | Literal["all"] = Field("all", description="look at a random part of the pool only")


class Annotation(Section):
    """When the labels that people give are enough to go on."""

    min_share: Share = Field(
        1.0, description="share of a round's samples that must be answered at a site before the run goes on"
    )
    poll_seconds: float = Field(10.0, gt=0, le=3600, description="time between two looks for answers (--wait)")


class Simulation(Section):
    """How Flower's simulation uses this machine, or a cluster."""

    workers: Positive | None = Field(
        None, description="sites at work at the same time; as many as there are cores for by default"
    )
    address: str | None = Field(
        None,
        description="a Ray cluster to use, such as auto or HOST:PORT; a private one on this machine by default",
    )


class Deployment(Section):
    """Where the coordinator of sites on their own machines is, and whom it waits for."""

    coordinator: str | None = Field(None, description="the coordinator's folder, as `feal deploy init` writes it")
    patience: float = Field(
        60.0, ge=0, description="seconds a site may be cut off before a message goes on without it"
    )


class Synthetic(Section):
    """Size and make-up of the synthetic data sets; what is left out is the data set's own default."""

    seed: int = Field(0, ge=0, description="which pictures; apart from the run's seed, so that runs share data")
    sites: Annotated[int, Field(ge=1, le=12)] = Field(4, description="number of centres")
    train: Positive | None = Field(None, description="training samples of the largest centre")
    test: Annotated[int, Field(ge=0)] | None = Field(None, description="test samples of every centre")
    size: Annotated[int, Field(ge=32, le=512)] | None = Field(None, description="height and width in pixels")
    classes: Annotated[int, Field(ge=2, le=8)] | None = Field(None, description="lesion classes")
    given: float = Field(0.0, ge=0, lt=1, description="share of training samples labelled from the start")


class Settings(Section):
    """An experiment; `model_dump(by_alias=True)` is what `config.yaml` holds."""

    dataset: str = Field(description="name of a data set, or the path of a prepared folder")
    data: str | None = Field(None, description="folder of prepared data sets; $FEAL_DATA or the cache otherwise")
    size: Annotated[int, Field(ge=8, le=4096)] | None = Field(
        None, description="height and width that the set was prepared with, if not the data set's own"
    )
    sites: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        None, description="sites of the data set that take part; all by default"
    )
    validation: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="tuning: judge by this share of the training part, held out by patient; the test part rests",
    )
    model: str = Field(description="name of a network")
    weights: str = Field(
        "none", description="what the network starts from: none (random weights), imagenet, or a file of weights"
    )
    weights_digest: str | None = Field(None, description="which weights these are; noted when a run begins")
    strategy: str = Field("feal", description="which samples to label next")
    query_model: QueryModel | None = Field(
        None, description="the model that is asked, for strategies that let one choose"
    )
    loss: Loss | None = Field(None, description="training loss; the strategy's own by default")
    counts: Counts | None = Field(
        None,
        description="class counts behind losses; default: all sites' for the balanced, the site's own for weights",
    )
    share_counts: bool = Field(
        True, description="let a site's class counts reach the coordinator, which sums them"
    )
    engine: str = Field("in-process", description="what carries messages to the sites")
    fresh: bool = Field(False, description="in-process: rebuild every site from its disk for every message")
    annotator: str = Field("oracle", description="who gives the labels")
    allow_single_class: bool = Field(False, description="accept a site all of whose samples are of one class")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where networks run")
    threads: Positive = Field(1, description="threads of a site's computation; part of what makes bits equal")
    seed: int = Field(0, ge=0, description="seed of every random draw of the run")
    rounds: Positive = Field(5, description="active-learning rounds")
    communication_rounds: Positive = Field(100, description="communication rounds in an active-learning round")
    # Strict, as 1.0 (all?) and true would otherwise pass for one label.
    budget: (
        Annotated[int, Field(ge=1, strict=True)]
        | Annotated[float, Field(gt=0, lt=1, strict=True)]
        | Literal["all"]
    ) = Field(500, description="labels a site may ask for in a round: a number, a share of its samples, or all")
    cap: Share = Field(0.85, description="share of a site's samples that may be labelled in all")
    restart: bool = Field(True, description="start every round from the initial weights")
    participation: Share = Field(1.0, description="share of the sites that train in a communication round")
    quorum: Positive | None = Field(None, description="sites that must answer for a round to count; default: all")
    round_timeout: Annotated[float, Field(gt=0, le=30 * 24 * 3600)] | None = Field(
        None, description="seconds a site may take for one message before the round goes on without it"
    )
    evaluate_every: int = Field(
        0, ge=0, description="communication rounds between figures inside a round; 0: none"
    )
    initial: Literal["random", "given"] = Field("random", description="where the first labels come from")
    diagnostics: bool = Field(True, description="keep at the site what later analysis needs")
    training: Training = Training()
    transforms: Transforms = Transforms()
    evidence: Evidence = Evidence()
    selection: Selection = Selection()
    annotation: Annotation = Annotation()
    simulation: Simulation = Simulation()
    deployment: Deployment = Deployment()
    synthetic: Synthetic = Synthetic()

    def dump(self) -> dict[str, Any]:
        """The settings as plain JSON values, under the names users write."""
        return self.model_dump(mode="json", by_alias=True)

    def identity(self) -> str:
        """A hash of what the run computes: all settings but the operational ones and the unused `LATER` ones."""
        unused = later_defaults().items()
        decisive = dict(
            item for item in flatten(self.dump()).items() if item[0] not in OPERATIONAL and item not in unused
        )
        canonical = json.dumps(decisive, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted names.

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


OPERATIONAL = (
    "rounds",
    "engine",
    "fresh",
    "data",
    "quorum",
    "round_timeout",
    "annotation.min_share",
    "annotation.poll_seconds",
    "simulation.workers",
    "simulation.address",
    "deployment.coordinator",
    "deployment.patience",
)
"""Settings that may change while a run is under way: how far it goes, what carries it, whom it waits for."""

LATER = ("sites", "size", "training.trainable", "training.views", "transforms.", "validation", "weights")
"""Beginnings of names of settings that came when there were runs already: at their defaults they change no id."""


def later_defaults() -> dict[str, Any]:
    """What a run that does not name its `LATER` settings was begun with."""
    defaults = flatten(Settings(dataset="", model="").dump())
    return {key: value for key, value in defaults.items() if key.startswith(LATER)}
