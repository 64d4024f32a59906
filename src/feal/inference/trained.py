"""A trained model, ready to look at images: from a run directory, or from an exported folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import ValidationError

from feal.data.prepared import SCALE
from feal.data.transforms import seen
from feal.errors import FealError
from feal.evidential import uncertainties
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.journal import Journal, State, Weights
from feal.files import read_json, read_tensors
from feal.inference.facts import FORMAT, Evaluation, Facts, Input, Origin
from feal.models import build_model, device_named, frozen_model, on_device, threads
from feal.selection import Context
from feal.settings import Settings, Task
from feal.version import VERSION

FACTS = "model.json"
WEIGHTS = "model.safetensors"

# What an export tells of the run's settings: named one by one, so that no place or address of a site slips in.
_SHAPING = (
    *("model", "weights_digest", "strategy", "query_model", "loss", "counts", "initial", "seed", "rounds"),
    *("communication_rounds", "sites", "validation", "budget", "cap", "restart", "participation", "training"),
    *("transforms", "evidence", "selection", "synthetic"),
)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says of n images with C classes; in segmentation every shape ends in [H, W]."""

    prediction: torch.Tensor
    """The class with the largest logit, int64 [n]."""
    probability: torch.Tensor
    """Expected probability of each class, float32 [n, C]: alpha / S, or the softmax without evidential loss."""
    aleatoric: torch.Tensor
    """float64 [n]."""
    epistemic: torch.Tensor
    """float64 [n]."""


class TrainedModel:
    """A network with its weights, and the facts that it takes to use it.

    Raises:
        FealError: there is no such network here, or the weights are not of it.
    """

    def __init__(self, facts: Facts, weights: Weights) -> None:
        self.facts = facts
        size = facts.input
        try:
            network = build_model(
                facts.model,
                task=facts.task,
                classes=len(facts.classes),
                channels=size.channels,
                height=size.height,
                width=size.width,
                weights=weights,
            )
        except RuntimeError as error:
            raise FealError(
                f"The weights do not fit a {facts.model} of {len(facts.classes)} classes: export the model again."
            ) from error
        # A run on a GPU can be taken to a machine without one.
        self._device = device_named("cpu" if facts.evaluation.device == "cpu" else "auto")
        self.network = network.to(self._device).eval()
        self.context = Context.for_reading(
            task=facts.task, classes=len(facts.classes), evidence=facts.evidence, loss=facts.loss
        )

    @torch.no_grad()
    def predict(self, images: torch.Tensor) -> Prediction:
        """Look at images, float32 [n, channels, height, width] with values as prepared; they are normalised here.

        Errors: ValueError for images of another shape.
        """
        size = self.facts.input
        if images.ndim != 4 or images.shape[1:] != (size.channels, size.height, size.width):
            raise ValueError(
                f"images are [n, {size.channels}, {size.height}, {size.width}], not {list(images.shape)}"
            )
        with threads(self.facts.evaluation.threads):
            parts = [self._predict(batch) for batch in images.split(self.facts.evaluation.batch_size)]
        return Prediction(**{name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def _predict(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        images = seen(images.to(self._device), self.facts.transforms, task=self.facts.task)
        logits = self.network.outputs(on_device(images, self._device)).logits
        aleatoric, epistemic = uncertainties(self.context.concentration(logits))
        return {
            "prediction": logits.argmax(1).cpu(),
            "probability": self.context.probability(logits).cpu(),
            "aleatoric": aleatoric.cpu(),
            "epistemic": epistemic.cpu(),
        }


def open_trained(path: Path | str, *, round: int | None = None) -> TrainedModel:
    """The model in a run directory (its newest round, or the one asked for) or in an exported folder.

    Nothing is written there, and a run that is under way is not disturbed.

    Raises:
        FealError: neither lies there, no such round, a damaged file.
    """
    path = Path(path)
    if (path / FACTS).is_file():
        return from_export(path, round=round)
    if (path / "config.yaml").is_file():
        return from_run(path, round=round)
    raise FealError(
        f"{path} holds neither a run nor an exported model: give a folder that `feal run` or `feal export` named."
    )


def from_run(path: Path, *, round: int | None = None) -> TrainedModel:
    """The global model of a run's newest finished round, or of the round asked for."""
    settings = settings_of(RunFolder(path))
    journal = Journal(path)
    if not journal.begun():
        raise _no_round(path)
    state = journal.load()
    number = _chosen_round(path, state, round)
    if not state.facts:
        raise FealError(f"{path} is of a version that did not note what its images are: run it again.")
    name = f"round-{number:03}"
    record = _record(journal, state, number)
    facts = _facts(settings, state, number, record, sha256=state.weights[name])
    return TrainedModel(facts, _with_trunk(journal.weights(state, name), facts, settings))


def from_export(path: Path, *, round: int | None = None) -> TrainedModel:
    """The model that `feal export` wrote; of its files `model.json` and the safetensors are read."""
    content = read_json(path / FACTS)
    if isinstance(content, dict) and content.get("format") != FORMAT:
        raise FealError(f"{path / FACTS} is not of format {FORMAT}: use the version of feal that wrote it.")
    try:
        facts = Facts.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise FealError(f"{path / FACTS} is damaged ({where or 'no facts'}): export the model again.") from error
    if round not in (None, facts.origin.round):
        raise FealError(f"{path} holds round {facts.origin.round} only: export round {round} from the run.")
    return TrainedModel(facts, read_tensors(path / WEIGHTS, sha256=facts.sha256))


def _with_trunk(weights: Weights, facts: Facts, settings: Settings) -> Weights:
    """The whole network's weights, where only those of a part were trained and travelled."""
    if settings.training.trainable == "all":
        return weights
    size = facts.input
    shape = {"channels": size.channels, "height": size.height, "width": size.width}
    network = frozen_model(settings, task=facts.task, classes=len(facts.classes), **shape)
    return {**network.state_dict(), **weights}


def _chosen_round(path: Path, state: State, wanted: int | None) -> int:
    finished = [number for number in range(1, state.round + 1) if f"round-{number:03}" in state.weights]
    if not finished:
        raise _no_round(path)
    if wanted is None:
        return finished[-1]
    if wanted not in finished:
        raise FealError(f"{path} has no finished round {wanted}: the newest is round {finished[-1]}.")
    return wanted


def _no_round(path: Path) -> FealError:
    return FealError(f"{path} has no finished round yet: see `feal show {path}`, and try again after the first.")


def _record(journal: Journal, state: State, number: int) -> dict[str, Any]:
    """The round's event in the log; empty while its figures are still to come."""
    events = journal.events(state)
    return next((event for event in events if event["event"] == "round" and event["round"] == number), {})


def _facts(settings: Settings, state: State, number: int, record: dict[str, Any], *, sha256: str) -> Facts:
    images = dict(state.facts)
    # A data set or weights that are given by their place: that is nobody's business.
    dataset = Path(settings.dataset).name
    places = {"dataset": dataset, "weights": Path(settings.weights).name}
    return Facts(
        feal=VERSION,
        model=settings.model,
        task=cast(Task, state.task),
        classes=images.pop("classes"),
        sha256=sha256,
        input=Input(**images, scale=SCALE.get(images["dtype"])),
        transforms=settings.transforms,
        loss=settings.loss or "plain",
        evidence=settings.evidence,
        evaluation=Evaluation(
            batch_size=settings.selection.batch_size, threads=settings.threads, device=settings.device
        ),
        origin=Origin(
            dataset=dataset,
            round=number,
            labels=record.get("labels", dict(state.labels)),
            tested={site: sum(counts) for site, counts in record.get("energy", {}).items()},
            metrics=record.get("metrics", {}),
            settings={**{key: settings.dump()[key] for key in _SHAPING}, **places},
        ),
    )
