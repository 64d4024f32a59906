"""Define synthetic data sets: their parameters, cohorts and cameras, and how they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pydantic
from numpy.typing import NDArray
from scipy import ndimage

from feal.data.synthetic.drawing import Field, make_generator, pixel_grid
from feal.data.writer import PreparedWriter, SiteWriter
from feal.registry import Configurable
from feal.settings import Task

_CHUNK = 128


class SyntheticDataset(Configurable, ABC):
    """A data set drawn by rule; the same parameters always give the same bytes."""

    class Params(Configurable.Params):
        """Size and composition of the set."""

        seed: int = pydantic.Field(0, ge=0, lt=2**63, description="which images; apart from the run's seed")
        sites: int = pydantic.Field(4, ge=1, le=12, description="number of centres")
        train: int = pydantic.Field(
            600,
            ge=1,
            le=10**6,
            description="training samples of the largest centre; the others have 0.8, 0.6 and 0.45 of it",
        )
        test: int = pydantic.Field(200, ge=0, le=10**6, description="test samples of every centre")
        size: int = pydantic.Field(32, ge=32, le=512, description="height and width in pixels")
        labelled_fraction: float = pydantic.Field(
            0.0, ge=0, lt=1, description="fraction of training samples labelled from the start"
        )

    params: Params
    is_generated: ClassVar[bool] = True
    """Whether it is written on first use, rather than prepared from files."""
    name: ClassVar[str]
    task: ClassVar[Task]
    version: ClassVar[int] = 1
    """Raise it when the same parameters give other images."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes in the order of their numbers."""

    @abstractmethod
    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """Draw the image [3, size, size] of a case; return it with its class or its mask [size, size]."""

    def cases(self, site: str) -> list[Case]:
        """Return the samples of a site, the training split first."""
        counts = {"train": max(1, round(self.params.train * site_share(site))), "test": self.params.test}
        address = (self.name, self.params.seed)
        return [
            case
            for split, count in counts.items()
            for case in draw_cohort(
                address, site=site, split=split, count=count, given=self.params.labelled_fraction
            )
        ]

    def write(self, root: Path) -> None:
        """Draw the data set and write it as a prepared folder."""
        with PreparedWriter(
            root,
            name=self.name,
            task=self.task,
            classes=self.class_names,
            channels=3,
            height=self.params.size,
            width=self.params.size,
            source={"version": self.version, "parameters": self.params.model_dump()},
        ) as writer:
            for site in SITE_NAMES[: self.params.sites]:
                self._write_site(writer.site(site))

    def _write_site(self, writer: SiteWriter) -> None:
        cases = self.cases(writer.name)
        for start in range(0, len(cases), _CHUNK):
            part = cases[start : start + _CHUNK]
            images, labels = zip(*(self.draw(writer.name, case) for case in part), strict=True)
            writer.append(
                ids=[case.id for case in part],
                patients=[case.patient for case in part],
                splits=[case.split for case in part],
                initial=[case.initial for case in part],
                sources=[case.kind for case in part],
                images=np.stack(images),
                labels=np.stack(labels),
            )


def to_uint8(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Convert an image with values about [0, 1] to 8 bits."""
    pixels: NDArray[np.uint8] = (np.clip(image, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)
    return pixels


# The fractional parts of its multiples fill [0, 1) evenly from the start.
_GOLDEN = 0.6180339887498949

_AMBIGUOUS = 0.2
_SERIES = 0.08


@dataclass(frozen=True, kw_only=True)
class Case:
    """A sample to draw; `kind` tells how informative its label is.

    `easy`: a clear case; `ambiguous`: between two classes, or hardly visible; `redundant`: another image of one
    patient. `rank` in [0, 1) is spread evenly over a site's patients, so that class shares derived from it hold in
    every prefix of the cohort.
    """

    id: str
    patient: str
    split: str
    kind: str
    initial: bool
    address: tuple[str | int, ...]
    take: int
    rank: float


def draw_cohort(address: tuple[str | int, ...], *, site: str, split: str, count: int, given: float) -> list[Case]:
    """Draw the first `count` cases of a site's split; a larger count does not change earlier cases.

    >>> few = draw_cohort((0, "lesions"), site="alder", split="train", count=3, given=0.0)
    >>> few == draw_cohort((0, "lesions"), site="alder", split="train", count=9, given=0.0)[:3]
    True
    """
    cases = islice(_cases((*address, site, split), site=site, split=split, given=given), count)
    return list(cases)


def _cases(address: tuple[str | int, ...], *, site: str, split: str, given: float) -> Iterator[Case]:
    start = make_generator(*address, "rank").random()
    index = numbers()
    for patient in numbers():
        own = (*address, patient)
        generator = make_generator(*own, "course")
        clear, series, length = generator.random(), generator.random(), int(generator.integers(4, 9))
        kind = "ambiguous" if clear < _AMBIGUOUS else "easy"
        # Repeats in the test split would only make its metrics noisier.
        repeated = split == "train" and kind == "easy" and series < _SERIES / (1 - _AMBIGUOUS)
        for take in range(length if repeated else 1):
            yield Case(
                id=f"{site}-{split}-{next(index):06d}",
                patient=f"{site}-{split}-p{patient:06d}",
                split=split,
                kind="redundant" if take else kind,
                initial=split == "train" and make_generator(*own, take, "given").random() < given,
                address=own,
                take=take,
                rank=(start + patient * _GOLDEN) % 1.0,
            )


SITE_NAMES = (
    "alder", "birch", "cedar", "dogwood", "elm", "fir",
    "ginkgo", "hazel", "ironwood", "juniper", "katsura", "larch",
)  # fmt: skip

_SHARES = (1.0, 0.8, 0.6, 0.45)


@dataclass(frozen=True, kw_only=True)
class Camera:
    """The properties of a site's camera."""

    cast: tuple[float, float, float]
    contrast: float
    gamma: float
    saturation: float
    blur: float
    noise: float
    grain: float
    vignette: float
    zoom: float


_CAMERAS = {
    "alder": Camera(
        cast=(1.0, 1.0, 1.0), contrast=1.0, gamma=1.0, saturation=1.0,
        blur=0.0, noise=0.012, grain=0.0, vignette=0.0, zoom=1.0,
    ),
    "birch": Camera(
        cast=(0.86, 0.98, 1.12), contrast=0.74, gamma=0.8, saturation=0.75,
        blur=0.5, noise=0.01, grain=0.0, vignette=0.15, zoom=0.84,
    ),
    "cedar": Camera(
        cast=(1.12, 0.93, 0.74), contrast=1.22, gamma=1.25, saturation=1.15,
        blur=0.25, noise=0.022, grain=0.6, vignette=0.75, zoom=1.06,
    ),
    "dogwood": Camera(
        cast=(1.06, 0.86, 1.02), contrast=0.92, gamma=1.15, saturation=0.6,
        blur=0.0, noise=0.035, grain=0.0, vignette=0.4, zoom=1.25,
    ),
}  # fmt: skip


def get_camera(site: str) -> Camera:
    """Return the camera of a site: fixed for the first four sites, drawn by name for the others."""
    if site in _CAMERAS:
        return _CAMERAS[site]
    generator = make_generator("camera", site)
    return Camera(
        cast=tuple(generator.uniform(0.8, 1.15, 3)),
        contrast=generator.uniform(0.75, 1.25),
        gamma=generator.uniform(0.8, 1.25),
        saturation=generator.uniform(0.6, 1.2),
        blur=generator.choice([0.0, 0.4, 0.9]),
        noise=generator.uniform(0.01, 0.06),
        grain=generator.choice([0.0, 0.6]),
        vignette=generator.uniform(0.0, 0.8),
        zoom=generator.uniform(0.82, 1.25),
    )


def site_share(site: str) -> float:
    """Return a site's size relative to the largest site."""
    return _SHARES[SITE_NAMES.index(site) % len(_SHARES)]


def photograph(image: Field, camera: Camera, generator: np.random.Generator) -> Field:
    """Apply a camera to an image [3, H, W]; blur is in pixels of a 32-pixel image."""
    size = image.shape[-1]
    grey = image.mean(axis=0)
    image = grey + camera.saturation * (image - grey)
    image = 0.55 + camera.contrast * (image - 0.55)
    image = np.clip(image, 0.0, 1.0) ** camera.gamma * np.array(camera.cast)[:, None, None]
    if camera.vignette:
        image = image * _vignette(size, camera.vignette)
    if camera.blur:
        spread = camera.blur * size / 32
        image = ndimage.gaussian_filter(image, (0, spread, spread), truncate=2.5)
    return image + _grain(generator, size, camera)


def _vignette(size: int, strength: float) -> Field:
    x, y = pixel_grid(size)
    dark: Field = 1 - strength / (1 + np.exp(-10 * (np.hypot(x, y) - 1.12)))
    return dark


def _grain(generator: np.random.Generator, size: int, camera: Camera) -> Field:
    light = generator.standard_normal((1, size, size))
    colour = generator.standard_normal((3, size, size))
    both = 0.8 * light + 0.6 * colour
    if camera.grain:
        both = 1.8 * ndimage.gaussian_filter(both, (0, camera.grain, camera.grain), truncate=2.5)
    return camera.noise * both
