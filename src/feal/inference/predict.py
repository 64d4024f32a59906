"""Predict a folder of image files: decode them as the network's input, and write what the model gives."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from feal.data.prepare.base import UnusableFileError
from feal.data.prepare.decode import IMAGE_SUFFIXES, open_upright
from feal.data.prepared import scale_pixels
from feal.errors import FealError
from feal.fileio import atomic_directory, write_text
from feal.inference.card import render_predictions_readme
from feal.inference.model import InputFormat, ModelInfo, TrainedModel
from feal.inference.writers import SourceImage, make_writer

_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class DecodedImage:
    """An image as the network takes it, and the size of its file."""

    pixels: NDArray[np.float32]
    """[channels, height, width], values in [0, 1]."""
    width: int
    height: int


class PredictionCallback(Protocol):
    """Receives the progress of a prediction."""

    def on_image(self, done: int, total: int) -> None:
        """Receive how many of all images are predicted."""

    def on_skip(self, message: str) -> None:
        """Receive why an image cannot be read."""


@dataclass(frozen=True, kw_only=True)
class PredictionSummary:
    """A directory of predictions in numbers."""

    folder: Path
    images: int
    skipped: int
    by_class: Mapping[str, float]
    """Images predicted as each class; in segmentation the mean fraction of pixels."""
    aleatoric: float
    epistemic: float


def predict_images(
    model: TrainedModel,
    images: Path,
    out: Path,
    *,
    values: bool = False,
    callback: PredictionCallback | None = None,
) -> PredictionSummary:
    """Predict every image below `images` and write `predictions.csv`, masks and maps into the new directory `out`.

    `out` appears when everything is in it. No more than a batch of images is in memory; unreadable ones are
    skipped. `values` keeps the exact uncertainties of pixels as `.npy`.

    Raises:
        FealError: no image, none that can be read, a model that image files do not suit, or `out` exists.
    """
    check_image_files_suit(model.info.input)
    names = find_images(images)
    if out.resolve().is_relative_to(images.resolve()):
        raise FealError(f"{out} lies among the images, and masks would be taken for some: choose another --out.")
    with atomic_directory(out) as folder:
        writer = make_writer(model.info, folder, values=values)
        with (folder / "predictions.csv").open(
            "w", newline="", encoding="utf-8", errors="surrogateescape"
        ) as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(writer.columns)
            for sources, batch in _read_batches(model.info, images, names, callback):
                table.writerows(writer.rows(sources, model.predict(batch)))
        if not writer.images:
            raise FealError(f"None of the {len(names)} images in {images} could be read: see the notes above.")
        write_text(folder / "README.md", render_predictions_readme(model.info, images=writer.images))
    return PredictionSummary(
        folder=out,
        images=writer.images,
        skipped=len(names) - writer.images,
        by_class=dict(zip(model.info.classes, writer.summarise_classes(), strict=True)),
        aleatoric=writer.aleatoric / writer.images,
        epistemic=writer.epistemic / writer.images,
    )


def find_images(folder: Path) -> list[str]:
    """Return the image files below a directory as sorted paths relative to it; hidden ones are skipped.

    Raises:
        FealError: there is no such directory, or no image in it.
    """
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: give the one that holds the images.")
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir())
    relative = (path.relative_to(folder) for path in files)
    found = [path.as_posix() for path in relative if not any(part.startswith(".") for part in path.parts)]
    if not found:
        raise FealError(f"There is no image in {folder} or below it: looked for {', '.join(IMAGE_SUFFIXES)}.")
    return sorted(found)


def check_image_files_suit(expected: InputFormat) -> None:
    """Raise a `FealError` where image files cannot hold what the network was trained on."""
    if expected.channels not in _MODES:
        raise FealError(
            f"The model takes images of {expected.channels} channels, and image files have 1 or 3: "
            "give it arrays from Python, as its model card shows."
        )
    if expected.scale is None:
        raise FealError(
            f"The model was trained on {expected.dtype} images with a value range of their own, which image files "
            "do not have: give it arrays from Python, as its model card shows."
        )


def read_image(path: Path, expected: InputFormat) -> DecodedImage:
    """Decode an image file: grey or RGB as the network takes it, fitted to its size, integers scaled to [0, 1].

    A file that the run's data set was prepared from gives the same numbers as the prepared data. Where the
    manifest does not say how images were fitted, it is stretched (bicubic); a PNG of a prepared image then gives
    the same numbers. Pixels are scaled by the largest value of their type; transparency is ignored, the
    orientation that a camera recorded is applied.

    Raises:
        FealError: it cannot be decoded, has several pages, or values of unknown range; one sentence names it.
    """
    try:
        image = open_upright(path)
    except UnusableFileError as error:
        raise FealError(f"{path} {error}.") from error
    if image.mode in ("I", "F"):
        raise FealError(f"{path} has 32-bit values of unknown range: save it with 8 or 16 bits.")
    converted = _to_grey_or_rgb(image, expected.channels)
    if expected.fitting is None:
        pixels = np.asarray(converted.resize((expected.width, expected.height), Image.Resampling.BICUBIC))
    else:
        stored = _to_stored_depth(np.asarray(converted), expected.dtype)
        pixels = expected.fitting.fit_image(stored, expected.height, expected.width)
    planes = np.repeat(pixels[None], expected.channels, axis=0) if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return DecodedImage(scale_pixels(planes), image.width, image.height)


def _to_grey_or_rgb(image: Image.Image, channels: int) -> Image.Image:
    """Return grey of 16 bits unchanged, anything else as grey or RGB of 8 bits, by the number of channels."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(np.asarray(image).astype(np.uint16))
    return (image.convert("RGBA") if image.mode == "P" else image).convert(_MODES[channels])


def _to_stored_depth(pixels: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return 8-bit pixels as 16 bits, or the upper 8 bits of 16, to round them as preparation does."""
    if pixels.dtype.name == dtype:
        return pixels
    return pixels.astype(np.uint16) * 257 if dtype == "uint16" else (pixels >> 8).astype(np.uint8)


def _read_batches(
    info: ModelInfo, folder: Path, names: Sequence[str], callback: PredictionCallback | None
) -> Iterator[tuple[list[SourceImage], torch.Tensor]]:
    """Yield the readable images, as many at a time as the run's own evaluation took."""
    sources, pixels = [], []
    for done, name in enumerate(names, start=1):
        try:
            image = read_image(folder / name, info.input)
        except FealError as error:
            if callback is not None:
                callback.on_skip(str(error))
        else:
            sources.append(SourceImage(name, image.width, image.height))
            pixels.append(image.pixels)
        if sources and (len(sources) == info.evaluation.batch_size or done == len(names)):
            yield sources, torch.from_numpy(np.stack(pixels))
            sources, pixels = [], []
        if callback is not None:
            callback.on_image(done, len(names))
