"""Look at a folder of pictures, a batch at a time, and write what the model says."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from feal.errors import FealError
from feal.files import whole_folder, write_text
from feal.inference.facts import Facts
from feal.inference.pictures import check_readable, find_pictures, read_picture
from feal.inference.results import ClassResults, Looked, MaskResults, Results
from feal.inference.trained import TrainedModel

TABLE = "predictions.csv"


class Audience:
    """Hears how a prediction goes; this one keeps silent."""

    def looked(self, done: int, total: int) -> None:
        """So many of all pictures were looked at."""

    def left_out(self, sentence: str) -> None:
        """A picture cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A folder of predictions in figures."""

    folder: Path
    images: int
    skipped: int
    by_class: Mapping[str, float]
    """Pictures predicted as each class; in segmentation the mean share of pixels."""
    aleatoric: float
    epistemic: float


def predict_folder(
    model: TrainedModel,
    images: Path,
    out: Path,
    *,
    values: bool = False,
    audience: Audience | None = None,
) -> Predicted:
    """Predict every picture below `images` and write `predictions.csv`, masks and maps into the new folder `out`.

    `out` appears when everything is in it. No more than a batch of pictures is in memory; what cannot be read is
    left out. `values` keeps the exact uncertainties of pixels as `.npy`.

    Raises:
        FealError: no picture, none that can be read, a model that pictures do not fit, an `out` that is taken.
    """
    check_readable(model.facts.input)
    names = find_pictures(images)
    if out.resolve().is_relative_to(images.resolve()):
        raise FealError(f"{out} lies among the pictures, and masks would be taken for some: choose another --out.")
    with whole_folder(out) as folder:
        results = _results(model.facts, folder, values=values)
        with (folder / TABLE).open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(results.columns)
            for batch in _batches(model, images, names, audience or Audience()):
                table.writerows(results.rows(batch.pictures, model.predict(batch.images)))
        if not results.images:
            raise FealError(f"None of the {len(names)} pictures in {images} could be read: see the notes above.")
        write_text(folder / "README.md", _about(model.facts, results))
    return Predicted(
        folder=out,
        images=results.images,
        skipped=len(names) - results.images,
        by_class=dict(zip(model.facts.classes, _by_class(results), strict=True)),
        aleatoric=results.aleatoric / results.images,
        epistemic=results.epistemic / results.images,
    )


@dataclass(frozen=True)
class _Batch:
    pictures: Sequence[Looked]
    images: torch.Tensor


def _batches(model: TrainedModel, folder: Path, names: Sequence[str], audience: Audience) -> Iterator[_Batch]:
    """The pictures that can be read, as many at a time as the run's own evaluation took."""
    looked: list[Looked] = []
    pixels = []
    for done, name in enumerate(names, start=1):
        try:
            picture = read_picture(folder / name, model.facts.input)
        except FealError as error:
            audience.left_out(str(error))
        else:
            looked.append(Looked(name, picture.width, picture.height))
            pixels.append(picture.pixels)
        if looked and (len(looked) == model.facts.evaluation.batch_size or done == len(names)):
            yield _Batch(looked, torch.from_numpy(np.stack(pixels)))
            looked, pixels = [], []
        audience.looked(done, len(names))


def _results(facts: Facts, folder: Path, *, values: bool) -> Results:
    if facts.task == "classification":
        return ClassResults(facts)
    return MaskResults(facts, folder, values=values)


def _by_class(results: Results) -> list[float]:
    total = results.by_class if results.facts.task == "classification" else results.by_class / results.images
    numbers: list[float] = total.tolist()
    return numbers


def _about(facts: Facts, results: Results) -> str:
    origin = facts.origin
    head = f"""# Predictions

{results.images} pictures, looked at by the model of round {origin.round} of `{origin.settings["strategy"]}` on \
`{origin.dataset}`
({facts.model}, weights SHA-256 `{facts.sha256[:16]}...`, feal {facts.feal}). Not for diagnosis.

`{TABLE}` has a row a picture. `probability` is the expected probability of the predicted class,
`aleatoric` (ambiguous, from 0 to ln {len(facts.classes)}) and `epistemic` (little known; the larger the less, at \
most -lnGamma({len(facts.classes)})) are
the uncertainties. They mean something for pictures like those the model was trained on, and little for others.
"""
    if facts.task == "classification":
        return head
    return f"""{head}
Of segmented pictures these three are means over pixels, and `share_...` is a class's share of the pixels.

- `masks/`: a pixel's value is its class: {", ".join(f"{n} {name}" for n, name in enumerate(facts.classes))}.
- `maps/...-aleatoric.png`: u / ln C, from 0 (dark) to 1 (light), C = {len(facts.classes)} classes.
- `maps/...-epistemic.png`: exp((h + lnGamma(C)) / (C - 1)), from 0 (dark, much evidence) to 1 (light, none).

Scales are fixed, so maps can be compared. All are in the size of the picture. Exact values, as
float32 [aleatoric and epistemic, height, width] at the model's resolution, are kept with `feal predict --values`.
"""
