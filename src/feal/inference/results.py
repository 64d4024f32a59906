"""What is written of a prediction: a row a picture, and for segmentation its mask and uncertainty maps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image

from feal.data.fitting import Fitting
from feal.data.pictures import mask_picture, png_bytes
from feal.inference.facts import Facts
from feal.inference.maps import Map, aleatoric_share, epistemic_share, map_picture
from feal.inference.trained import Prediction
from feal.selection.contract import per_image


@dataclass(frozen=True)
class Looked:
    """A picture that was looked at: its path below the pictures' folder, and its own size."""

    name: str
    width: int
    height: int


class Results(ABC):
    """Rows of `predictions.csv`, and files beside it; sums for a summary are kept on the way."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.images = 0
        self.by_class = torch.zeros(len(facts.classes), dtype=torch.float64)
        """Pictures predicted as each class, or the sum of the pictures' shares of it."""
        self.aleatoric = 0.0
        self.epistemic = 0.0

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The head of the table."""

    @abstractmethod
    def _row(self, picture: Looked, said: Prediction, place: int) -> list[object]:
        """The columns between the picture's name and its uncertainties."""

    @abstractmethod
    def _shares(self, pictures: Sequence[Looked], said: Prediction) -> torch.Tensor:
        """What each picture counts to each class, float64 [n, C]."""

    @abstractmethod
    def _means(self, pictures: Sequence[Looked], values: torch.Tensor) -> torch.Tensor:
        """One number a picture, float64 [n]."""

    def rows(self, pictures: Sequence[Looked], said: Prediction) -> Iterator[list[str]]:
        """A row for each picture of a batch, its files being written."""
        aleatoric, epistemic = (self._means(pictures, values) for values in (said.aleatoric, said.epistemic))
        self.images += len(pictures)
        self.by_class += self._shares(pictures, said).sum(0)
        self.aleatoric += float(aleatoric.sum())
        self.epistemic += float(epistemic.sum())
        for place, picture in enumerate(pictures):
            row = [*self._row(picture, said, place), float(aleatoric[place]), float(epistemic[place])]
            yield [picture.name, *(repr(entry) if isinstance(entry, float) else str(entry) for entry in row)]


class ClassResults(Results):
    """A class for every picture."""

    @property
    def columns(self) -> list[str]:
        each = [f"p_{name}" for name in self.facts.classes]
        return ["image", "class", "class_index", "probability", *each, "aleatoric", "epistemic"]

    def _row(self, picture: Looked, said: Prediction, place: int) -> list[object]:
        index = int(said.prediction[place])
        each = said.probability[place].tolist()
        return [self.facts.classes[index], index, each[index], *each]

    def _means(self, pictures: Sequence[Looked], values: torch.Tensor) -> torch.Tensor:
        return values

    def _shares(self, pictures: Sequence[Looked], said: Prediction) -> torch.Tensor:
        return torch.nn.functional.one_hot(said.prediction, len(self.facts.classes)).double()


class MaskResults(Results):
    """A mask and two uncertainty maps for every picture, in its own size."""

    def __init__(self, facts: Facts, folder: Path, *, values: bool) -> None:
        super().__init__(facts)
        self._folder = folder
        self._values = values
        self._fitting = facts.input.fitting or Fitting()
        self._taken: set[str] = set()

    @property
    def columns(self) -> list[str]:
        shares = [f"share_{name}" for name in self.facts.classes]
        files = ["mask", "aleatoric_map", "epistemic_map", *(["values"] if self._values else [])]
        return ["image", *files, *shares, "probability", "aleatoric", "epistemic"]

    def _row(self, picture: Looked, said: Prediction, place: int) -> list[object]:
        mask = said.prediction[place]
        expected = self._shown(picture, said.probability[place].gather(0, mask.unsqueeze(0)))
        shares = self._shares_of(picture, mask).tolist()
        return [*self._write(picture, said, place), *shares, float(expected.double().mean())]

    def _shares(self, pictures: Sequence[Looked], said: Prediction) -> torch.Tensor:
        pairs = zip(pictures, said.prediction, strict=True)
        return torch.stack([self._shares_of(picture, mask) for picture, mask in pairs])

    def _shares_of(self, picture: Looked, mask: torch.Tensor) -> torch.Tensor:
        shown = self._shown(picture, mask)
        return torch.stack([(shown == number).double().mean() for number in range(len(self.facts.classes))])

    def _means(self, pictures: Sequence[Looked], values: torch.Tensor) -> torch.Tensor:
        means = per_image(values)
        for place, picture in enumerate(pictures):
            shown = self._shown(picture, values[place])
            # Without a rim the mean over the batch stands: it has the bits of the run's own evaluation.
            if shown.shape != values[place].shape:
                means[place] = shown.mean()
        return means

    def _shown(self, picture: Looked, values: torch.Tensor) -> torch.Tensor:
        """Of values [..., h, w] those where the image shows the picture, and no rim."""
        size = self.facts.input
        rows, columns = self._fitting.window(picture.height, picture.width, (size.height, size.width))
        return values[..., rows, columns]

    def _write(self, picture: Looked, said: Prediction, place: int) -> list[str]:
        name, classes = self._free_name(picture.name), len(self.facts.classes)
        aleatoric, epistemic = said.aleatoric[place], said.epistemic[place]
        files: dict[str, Image.Image] = {
            f"masks/{name}.png": self._mask(picture, said.prediction[place]),
            f"maps/{name}-aleatoric.png": self._map(picture, aleatoric_share(aleatoric.numpy(), classes=classes)),
            f"maps/{name}-epistemic.png": self._map(picture, epistemic_share(epistemic.numpy(), classes=classes)),
        }
        for path, drawn in files.items():
            self._place(path).write_bytes(png_bytes(drawn))
        if not self._values:
            return list(files)
        values = f"maps/{name}.npy"
        shown = self._shown(picture, torch.stack([aleatoric, epistemic]))
        np.save(self._place(values), shown.float().numpy())
        return [*files, values]

    def _mask(self, picture: Looked, prediction: torch.Tensor) -> Image.Image:
        small = prediction.numpy().astype(np.uint8)
        mask = self._fitting.back(small, picture.height, picture.width, nearest=True)
        return mask_picture(mask, classes=len(self.facts.classes))

    def _map(self, picture: Looked, share: Map) -> Image.Image:
        small = share.astype(np.float32)
        # What the network did not see it knows nothing of.
        return map_picture(self._fitting.back(small, picture.height, picture.width, nearest=False, unseen=1))

    def _place(self, path: str) -> Path:
        # The folder is published as a whole, so its files need no care of their own.
        place = self._folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def _free_name(self, picture: str) -> str:
        """The picture's path without its extension; with a number where a.png and a.jpg would meet."""
        stem = str(PurePosixPath(picture).with_suffix(""))
        name, number = stem, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name.casefold())
        return name
