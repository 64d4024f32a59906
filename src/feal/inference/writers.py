"""Write predictions: rows of `predictions.csv`, masks, and maps of every pixel's uncertainty."""

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
from feal.selection.scores import per_image

Map = NDArray[np.float64]


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
    from matplotlib import colormaps

    image = Image.fromarray((share.clip(0, 1) * 255).round().astype(np.uint8))
    image.putpalette(colormaps["magma"](np.arange(256), bytes=True)[:, :3].tobytes())
    return image


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
        self._by_class = torch.zeros(len(info.classes), dtype=torch.float64)
        self.aleatoric = 0.0
        self.epistemic = 0.0

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The header of the table."""

    @abstractmethod
    def _row(self, source: SourceImage, predicted: Prediction, index: int, counts: list[float]) -> list[object]:
        """Return the columns between the image's name and its uncertainties, given its row of the counts."""

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
        counts = self._class_counts(sources, predicted)
        self._by_class += counts.sum(0)
        self.aleatoric += float(aleatoric.sum())
        self.epistemic += float(epistemic.sum())
        for index, source in enumerate(sources):
            row = self._row(source, predicted, index, counts[index].tolist())
            row += [float(aleatoric[index]), float(epistemic[index])]
            yield [source.name, *(repr(entry) if isinstance(entry, float) else str(entry) for entry in row)]

    def summarise_classes(self) -> list[float]:
        """Return how many images were predicted as each class; in segmentation the mean fraction of pixels."""
        by_class = self._by_class if self.info.task == "classification" else self._by_class / self.images
        return [float(number) for number in by_class]


def make_writer(info: ModelInfo, folder: Path, *, values: bool) -> ResultWriter:
    """Return the writer for the model's task, which writes files into `folder`."""
    if info.task == "classification":
        return _ClassificationWriter(info)
    return _SegmentationWriter(info, folder, values=values)


class _ClassificationWriter(ResultWriter):
    """Writes a class for every image."""

    @property
    def columns(self) -> list[str]:
        each = [f"p_{name}" for name in self.info.classes]
        return ["image", "class", "class_index", "probability", *each, "aleatoric", "epistemic"]

    def _row(self, source: SourceImage, predicted: Prediction, index: int, counts: list[float]) -> list[object]:
        number = int(predicted.prediction[index])
        each = predicted.probability[index].tolist()
        return [self.info.classes[number], number, each[number], *each]

    def _means(self, sources: Sequence[SourceImage], values: torch.Tensor) -> torch.Tensor:
        return values

    def _class_counts(self, sources: Sequence[SourceImage], predicted: Prediction) -> torch.Tensor:
        return torch.nn.functional.one_hot(predicted.prediction, len(self.info.classes)).double()


class _SegmentationWriter(ResultWriter):
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

    def _row(self, source: SourceImage, predicted: Prediction, index: int, counts: list[float]) -> list[object]:
        mask = predicted.prediction[index]
        expected = self._inside(source, predicted.probability[index].gather(0, mask.unsqueeze(0)))
        return [*self._write(source, predicted, index), *counts, float(expected.double().mean())]

    def _class_counts(self, sources: Sequence[SourceImage], predicted: Prediction) -> torch.Tensor:
        classes = torch.arange(len(self.info.classes))[:, None, None]
        shown = (self._inside(source, mask) for source, mask in zip(sources, predicted.prediction, strict=True))
        return torch.stack([(mask == classes).double().mean((1, 2)) for mask in shown])

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
        shares = (
            scale_aleatoric(aleatoric.numpy(), classes=classes),
            scale_epistemic(epistemic.numpy(), classes=classes),
        )
        files = {
            f"masks/{name}.png": self._draw_mask(source, predicted.prediction[index]),
            f"maps/{name}-aleatoric.png": self._draw_map(source, shares[0]),
            f"maps/{name}-epistemic.png": self._draw_map(source, shares[1]),
        }
        for path, drawn in files.items():
            # The directory is published as a whole, so single files need not be written atomically.
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / path).write_bytes(encode_png(drawn))
        if not self._values:
            return list(files)
        values = f"maps/{name}.npy"
        shown = self._inside(source, torch.stack([aleatoric, epistemic]))
        np.save(self._folder / values, shown.float().numpy())
        return [*files, values]

    def _draw_mask(self, source: SourceImage, prediction: torch.Tensor) -> Image.Image:
        small = prediction.numpy().astype(np.uint8)
        mask = self._fitting.restore(small, source.height, source.width, nearest=True)
        return mask_to_pil(mask, classes=len(self.info.classes))

    def _draw_map(self, source: SourceImage, share: Map) -> Image.Image:
        small = share.astype(np.float32)
        # The network has no evidence about what it did not see.
        return render_map(self._fitting.restore(small, source.height, source.width, nearest=False, unseen=1))

    def _unused_name(self, source: str) -> str:
        """Return the image's path without its suffix, numbered where a.png and a.jpg would collide."""
        stem = str(PurePosixPath(source).with_suffix(""))
        name, number = stem, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name.casefold())
        return name
