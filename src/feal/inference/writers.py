"""Write predictions: rows of `predictions.csv`, masks, and maps of every pixel's uncertainty."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from feal.data.images import encode_png, mask_to_pil
from feal.data.resize import Fitting
from feal.inference.model import ModelInfo, Prediction
from feal.selection.base import per_image

Map = NDArray[np.float64]

# matplotlib's magma at every eighth: lightness grows evenly from dark to light.
_MAGMA = (
    (0, 0, 4),
    (28, 16, 68),
    (79, 18, 123),
    (129, 37, 129),
    (181, 54, 122),
    (229, 80, 100),
    (251, 135, 97),
    (254, 194, 135),
    (252, 253, 191),
)


def scale_aleatoric(aleatoric: Map, *, classes: int) -> Map:
    """Scale the aleatoric uncertainty by its largest value: u / ln C, from 0 to 1."""
    return aleatoric / math.log(classes)


def scale_epistemic(epistemic: Map, *, classes: int) -> Map:
    """Scale the width of the Dirichlet by that of one without evidence, per dimension, from 0 to 1.

    exp((h + lnGamma(C)) / (C - 1)), with h the differential entropy and -lnGamma(C) the largest there is.

    >>> scale_epistemic(np.array([-math.lgamma(3), -math.lgamma(3) - 2]), classes=3).round(3).tolist()
    [1.0, 0.368]
    """
    return np.exp((epistemic + math.lgamma(classes)) / (classes - 1))


def render_map(share: NDArray[np.floating]) -> Image.Image:
    """Render values [H, W] from 0 to 1 as a palette image, from dark (0) to light (1)."""
    image = Image.fromarray((share.clip(0, 1) * 255).round().astype(np.uint8))
    image.putpalette(_palette())
    return image


def _palette() -> bytes:
    steps = np.linspace(0, len(_MAGMA) - 1, 256)
    table = np.stack([np.interp(steps, range(len(_MAGMA)), part) for part in zip(*_MAGMA, strict=True)], axis=1)
    return table.round().astype(np.uint8).tobytes()


@dataclass(frozen=True)
class SourceImage:
    """An image file: its path below the directory of images, and its size in pixels."""

    name: str
    width: int
    height: int


class ResultWriter(ABC):
    """Writes rows of `predictions.csv` and the files beside it, and sums what the summary needs."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self.images = 0
        self.by_class = torch.zeros(len(info.classes), dtype=torch.float64)
        """Images predicted as each class, or the sum of the images' fractions of it."""
        self.aleatoric = 0.0
        self.epistemic = 0.0

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The header of the table."""

    @abstractmethod
    def _row(self, source: SourceImage, predicted: Prediction, index: int) -> list[object]:
        """Return the columns between the image's name and its uncertainties."""

    @abstractmethod
    def _class_counts(self, sources: Sequence[SourceImage], predicted: Prediction) -> torch.Tensor:
        """Return what each image counts towards each class, float64 [n, C]."""

    @abstractmethod
    def _means(self, sources: Sequence[SourceImage], values: torch.Tensor) -> torch.Tensor:
        """Return one number per image, float64 [n]."""

    def rows(self, sources: Sequence[SourceImage], predicted: Prediction) -> Iterator[list[str]]:
        """Yield a row for each image of a batch, and write its files."""
        aleatoric, epistemic = (
            self._means(sources, values) for values in (predicted.aleatoric, predicted.epistemic)
        )
        self.images += len(sources)
        self.by_class += self._class_counts(sources, predicted).sum(0)
        self.aleatoric += float(aleatoric.sum())
        self.epistemic += float(epistemic.sum())
        for index, source in enumerate(sources):
            row = [*self._row(source, predicted, index), float(aleatoric[index]), float(epistemic[index])]
            yield [source.name, *(repr(entry) if isinstance(entry, float) else str(entry) for entry in row)]


class ClassificationWriter(ResultWriter):
    """Writes a class for every image."""

    @property
    def columns(self) -> list[str]:
        each = [f"p_{name}" for name in self.info.classes]
        return ["image", "class", "class_index", "probability", *each, "aleatoric", "epistemic"]

    def _row(self, source: SourceImage, predicted: Prediction, index: int) -> list[object]:
        number = int(predicted.prediction[index])
        each = predicted.probability[index].tolist()
        return [self.info.classes[number], number, each[number], *each]

    def _means(self, sources: Sequence[SourceImage], values: torch.Tensor) -> torch.Tensor:
        return values

    def _class_counts(self, sources: Sequence[SourceImage], predicted: Prediction) -> torch.Tensor:
        return torch.nn.functional.one_hot(predicted.prediction, len(self.info.classes)).double()


class SegmentationWriter(ResultWriter):
    """Writes a mask and two uncertainty maps for every image, in the size of its file."""

    def __init__(self, info: ModelInfo, folder: Path, *, values: bool) -> None:
        super().__init__(info)
        self._folder = folder
        self._values = values
        self._fitting = info.input.fitting or Fitting()
        self._taken: set[str] = set()

    @property
    def columns(self) -> list[str]:
        shares = [f"share_{name}" for name in self.info.classes]
        files = ["mask", "aleatoric_map", "epistemic_map", *(["values"] if self._values else [])]
        return ["image", *files, *shares, "probability", "aleatoric", "epistemic"]

    def _row(self, source: SourceImage, predicted: Prediction, index: int) -> list[object]:
        mask = predicted.prediction[index]
        expected = self._inside(source, predicted.probability[index].gather(0, mask.unsqueeze(0)))
        shares = self._class_fractions(source, mask).tolist()
        return [*self._write(source, predicted, index), *shares, float(expected.double().mean())]

    def _class_counts(self, sources: Sequence[SourceImage], predicted: Prediction) -> torch.Tensor:
        pairs = zip(sources, predicted.prediction, strict=True)
        return torch.stack([self._class_fractions(source, mask) for source, mask in pairs])

    def _class_fractions(self, source: SourceImage, mask: torch.Tensor) -> torch.Tensor:
        shown = self._inside(source, mask)
        return torch.stack([(shown == number).double().mean() for number in range(len(self.info.classes))])

    def _means(self, sources: Sequence[SourceImage], values: torch.Tensor) -> torch.Tensor:
        means = per_image(values)
        for index, source in enumerate(sources):
            shown = self._inside(source, values[index])
            # Without padding the mean over the batch stays: it has the bits of the run's own evaluation.
            if shown.shape != values[index].shape:
                means[index] = shown.mean()
        return means

    def _inside(self, source: SourceImage, values: torch.Tensor) -> torch.Tensor:
        """Return those of the values [..., h, w] that lie inside the image, without the padding."""
        size = self.info.input
        rows, columns = self._fitting.window(source.height, source.width, (size.height, size.width))
        return values[..., rows, columns]

    def _write(self, source: SourceImage, predicted: Prediction, index: int) -> list[str]:
        name, classes = self._unused_name(source.name), len(self.info.classes)
        aleatoric, epistemic = predicted.aleatoric[index], predicted.epistemic[index]
        files: dict[str, Image.Image] = {
            f"masks/{name}.png": self._mask(source, predicted.prediction[index]),
            f"maps/{name}-aleatoric.png": self._render(
                source, scale_aleatoric(aleatoric.numpy(), classes=classes)
            ),
            f"maps/{name}-epistemic.png": self._render(
                source, scale_epistemic(epistemic.numpy(), classes=classes)
            ),
        }
        for path, drawn in files.items():
            self._make_path(path).write_bytes(encode_png(drawn))
        if not self._values:
            return list(files)
        values = f"maps/{name}.npy"
        shown = self._inside(source, torch.stack([aleatoric, epistemic]))
        np.save(self._make_path(values), shown.float().numpy())
        return [*files, values]

    def _mask(self, source: SourceImage, prediction: torch.Tensor) -> Image.Image:
        small = prediction.numpy().astype(np.uint8)
        mask = self._fitting.restore(small, source.height, source.width, nearest=True)
        return mask_to_pil(mask, classes=len(self.info.classes))

    def _render(self, source: SourceImage, share: Map) -> Image.Image:
        small = share.astype(np.float32)
        # The network has no evidence about what it did not see.
        return render_map(self._fitting.restore(small, source.height, source.width, nearest=False, unseen=1))

    def _make_path(self, path: str) -> Path:
        # The directory is published as a whole, so single files need not be written atomically.
        whole = self._folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        return whole

    def _unused_name(self, source: str) -> str:
        """Return the image's path without its suffix, numbered where a.png and a.jpg would collide."""
        stem = str(PurePosixPath(source).with_suffix(""))
        name, number = stem, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name.casefold())
        return name
