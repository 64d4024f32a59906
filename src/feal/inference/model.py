"""Load a trained model from a run directory or an export, and predict images with it."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feal import __version__
from feal.data.augment import normalise
from feal.data.prepared import SCALE
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.evidential import build_loss, uncertainties
from feal.fileio import damage_error, read_json, read_tensors
from feal.models import build_initial_model, fold_batch_norms, restore_model
from feal.rundir.journal import Journal, State, Weights, read_settings
from feal.rundir.layout import RunDirectory, round_weights
from feal.rundir.records import MetricValue, Round
from feal.selection import SelectionContext
from feal.settings import Component, Positive, Settings, Task, Transforms
from feal.tensors import resolve_batch_size, resolve_device, to_device, use_threads

FORMAT: Literal[1] = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InputFormat(_Part):
    """The images that the network takes."""

    channels: Positive
    height: Positive
    width: Positive
    dtype: Literal["uint8", "uint16", "float16"]
    """How pixels are stored in the data it was trained on."""
    scale: float | None
    """Divisor of a stored pixel, for values in [0, 1]; none for float16, which is used unchanged."""
    fitting: Fitting | None = None
    """How images were fitted to that size; none if it is unknown: they are then stretched, bicubic."""


class EvaluationSetup(_Part):
    """How the run evaluated its test images: the same again gives the same bits on the same kind of machine."""

    batch_size: Positive
    threads: Positive
    device: Literal["auto", "cpu", "cuda"]


class TrainingOrigin(_Part):
    """The run and the round that the weights are from."""

    dataset: str
    round: Positive
    labels: dict[str, int]
    """Labels of each site that this round was trained on."""
    tested: dict[str, int]
    """Test images of each site; empty before the round is evaluated."""
    metrics: dict[str, MetricValue]
    """Every metric as `summary.json` has it; empty before the round is evaluated."""
    settings: dict[str, Any]
    """The part of the run's configuration that shaped the model."""


class ModelInfo(_Part):
    """The content of `model.json`: all that is needed to rebuild a network, and to prepare its input."""

    format: Literal[1] = FORMAT
    feal: str
    model: Component
    task: Task
    classes: Annotated[list[str], Field(min_length=2)]
    sha256: str
    """Of the weights' file."""
    input: InputFormat
    transforms: Transforms = Transforms()
    """Transforms of training images, and the normalisation of every image."""
    loss: Component
    evaluation: EvaluationSetup
    origin: TrainingOrigin

    def network_options(self) -> dict[str, Any]:
        """Return what `build_initial_model` and `restore_model` need to know besides the weights."""
        sizes = self.input.model_dump(include={"channels", "height", "width"})
        return {"params": self.model.params, "task": self.task, "classes": len(self.classes), **sizes}


INFO_FILE = "model.json"
WEIGHTS = "model.safetensors"

# Settings of the run that an export contains: named one by one, so that no path or address of a site gets in.
_SHAPING = (
    *("model", "weights_digest", "strategy", "loss", "class_count_scope", "initial_labels", "seed", "rounds"),
    *(
        "communication_rounds",
        "sites",
        "validation",
        "budget",
        "max_labelled_fraction",
        "restart",
        "participation",
    ),
    *("training", "transforms", "selection"),
)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The outputs of a model for n images with C classes; in segmentation every shape ends in [H, W]."""

    prediction: torch.Tensor
    """The class with the largest logit, int64 [n]."""
    probability: torch.Tensor
    """Expected probability of each class, float32 [n, C]: alpha / S, or the softmax without evidential loss."""
    aleatoric: torch.Tensor
    """float64 [n]."""
    epistemic: torch.Tensor
    """float64 [n]."""


class TrainedModel:
    """A network with its weights, and the information needed to use it.

    Raises:
        FealError: there is no such network here, or the weights are of another one.
    """

    def __init__(self, info: ModelInfo, weights: Weights) -> None:
        self.info = info
        try:
            network = restore_model(info.model.name, weights, **info.network_options())
        except RuntimeError as error:
            raise FealError(
                f"The weights do not fit a {info.model.name} of {len(info.classes)} classes: "
                "export the model again."
            ) from error
        # A run on a GPU can be taken to a machine without one.
        self._device = resolve_device("cpu" if info.evaluation.device == "cpu" else "auto")
        self.network = network.to(self._device).eval()
        self._folded = fold_batch_norms(self.network)
        self.context = SelectionContext.for_reading(
            task=info.task, classes=len(info.classes), loss=build_loss(info.loss)
        )

    @torch.no_grad()
    def predict(self, images: torch.Tensor) -> Prediction:
        """Predict images, float32 [n, channels, height, width] with values as prepared; they are normalised here.

        Raises:
            ValueError: images of another shape.
        """
        size = self.info.input
        if images.ndim != 4 or images.shape[1:] != (size.channels, size.height, size.width):
            raise ValueError(
                f"images are [n, {size.channels}, {size.height}, {size.width}], not {list(images.shape)}"
            )
        with use_threads(self.info.evaluation.threads):
            parts = [self._predict(batch) for batch in images.split(self.info.evaluation.batch_size)]
        return Prediction(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def _predict(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        images = normalise(images.to(self._device), self.info.transforms, task=self.info.task)
        logits = self._folded.outputs(to_device(images, self._device)).logits
        aleatoric, epistemic = uncertainties(self.context.concentration(logits))
        return {
            "prediction": logits.argmax(1).cpu(),
            "probability": self.context.probability(logits).cpu(),
            "aleatoric": aleatoric.cpu(),
            "epistemic": epistemic.cpu(),
        }


def load_model(path: str | PathLike[str], *, round: int | None = None) -> TrainedModel:
    """Load the global model of a run directory or of an export, of the last round by default.

    Nothing is written there, and a run in progress is not disturbed.

    Raises:
        FealError: there is neither, no such round, or a file is damaged.
    """
    path = Path(path)
    if (path / INFO_FILE).is_file():
        return _load_export(path, round=round)
    if RunDirectory(path).config.is_file():
        return _load_run(path, round=round)
    raise FealError(
        f"{path} is neither a run directory nor an exported model: give what `feal run` or `feal export` wrote."
    )


def _load_run(path: Path, *, round: int | None) -> TrainedModel:
    settings = read_settings(path)
    journal = Journal(path)
    if not journal.has_state():
        raise _no_round_error(path)
    state = journal.load()
    number = _choose_round(path, state, round)
    if not state.facts:
        raise damage_error(journal.run.state, "the classes and sizes of the images are missing")
    name = round_weights(number)
    # None while the round's metrics are still to come.
    record = next((record for record in journal.rounds(state) if record.round == number), None)
    info = _describe(settings, state, number, record, sha256=state.weights[name])
    weights = journal.weights(state, name)
    if "encoder" in state.facts:
        return TrainedModel(info, {**journal.weights(state, "initial"), **weights})
    return TrainedModel(info, _add_trunk(weights, info, settings))


def _load_export(path: Path, *, round: int | None) -> TrainedModel:
    content = read_json(path / INFO_FILE)
    if isinstance(content, dict) and content.get("format") != FORMAT:
        raise FealError(f"{path / INFO_FILE} is not of format {FORMAT}: use the version of feal that wrote it.")
    try:
        info = ModelInfo.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise FealError(
            f"{path / INFO_FILE} is damaged ({where or 'no info'}): export the model again."
        ) from error
    if round not in (None, info.origin.round):
        raise FealError(f"{path} holds round {info.origin.round} only: export round {round} from the run.")
    return TrainedModel(info, read_tensors(path / WEIGHTS, sha256=info.sha256))


def _add_trunk(weights: Weights, info: ModelInfo, settings: Settings) -> Weights:
    """Return the weights of the whole network where only a part was trained."""
    if settings.training.trainable == "all":
        return weights
    network = build_initial_model(
        info.model.name,
        weights=settings.weights,
        weights_digest=settings.weights_digest,
        frozen=True,
        **info.network_options(),
    )
    return {**network.state_dict(), **weights}


def _choose_round(path: Path, state: State, wanted: int | None) -> int:
    finished = [number for number in range(1, state.round + 1) if round_weights(number) in state.weights]
    if not finished:
        raise _no_round_error(path)
    if wanted is None:
        return finished[-1]
    if wanted not in finished:
        raise FealError(f"{path} has no finished round {wanted}: the newest is round {finished[-1]}.")
    return wanted


def _no_round_error(path: Path) -> FealError:
    return FealError(f"{path} has no finished round yet: see `feal show {path}`, and try again after the first.")


def _describe(settings: Settings, state: State, number: int, record: Round | None, *, sha256: str) -> ModelInfo:
    images = {name: fact for name, fact in state.facts.items() if name not in ("encoder", "features")}
    # A data set, weights and classes may be given by their paths, which an export should not reveal.
    dataset = Path(settings.dataset.name).name
    own = {key: value for key, value in settings.dataset.params.items() if key != "source"}
    names = {
        "dataset": {"name": dataset, **own},
        "weights": Path(settings.weights).name,
        "model": without_directory(settings.model).model_dump(),
        "strategy": without_directory(settings.strategy).model_dump(),
    }
    return ModelInfo(
        feal=__version__,
        model=settings.model,
        task=cast(Task, state.task),
        classes=images.pop("classes"),
        sha256=sha256,
        input=InputFormat(**images, scale=SCALE.get(images["dtype"])),
        transforms=settings.transforms,
        loss=settings.loss or Component(name="plain"),
        evaluation=EvaluationSetup(
            batch_size=resolve_batch_size(
                settings.selection.batch_size, height=images["height"], width=images["width"]
            ),
            threads=settings.threads,
            device=settings.device,
        ),
        origin=TrainingOrigin(
            dataset=dataset,
            round=number,
            labels=record.labels if record else state.labels,
            tested={site: sum(counts) for site, counts in record.energy.items()} if record else {},
            metrics=record.metrics if record else {},
            settings={**{key: settings.dump()[key] for key in _SHAPING}, **names},
        ),
    )


def without_directory(component: Component) -> Component:
    """Return a component whose class, if it is in a file, is named by the file's name alone.

    >>> without_directory(Component(name="/home/me/net.py:Net")).name
    'net.py:Net'
    """
    where, colon, class_ = component.name.rpartition(":")
    if not where.endswith(".py"):
        return component
    return component.model_copy(update={"name": f"{Path(where).name}{colon}{class_}"})
