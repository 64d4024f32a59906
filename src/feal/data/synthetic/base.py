"""Define synthetic data sets: their parameters, their patients, what images are drawn with, and cameras."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as numbers
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pydantic
from numpy.typing import NDArray

from feal.data.writer import PreparedWriter, SiteWriter
from feal.registry import Configurable
from feal.settings import Task

Field = NDArray[np.float64]

SITE_NAMES = (
    "alder", "birch", "cedar", "dogwood", "elm", "fir",
    "ginkgo", "hazel", "ironwood", "juniper", "katsura", "larch",
)  # fmt: skip

_SITE_SHARES = (1.0, 0.8, 0.6, 0.45)
"""Sizes of sites relative to the largest, repeated for sites after the fourth."""
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
        share = _SITE_SHARES[SITE_NAMES.index(site) % len(_SITE_SHARES)]
        counts = {"train": max(1, round(self.params.train * share)), "test": self.params.test}
        address, given = (self.name, self.params.seed), self.params.labelled_fraction
        return [
            case
            for split, count in counts.items()
            for case in draw_cohort(address, site=site, split=split, count=count, given=given)
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
    address = (*address, site, split)
    start = make_generator(*address, "rank").random()
    cases: list[Case] = []
    for patient in numbers():
        if len(cases) >= count:
            break
        own = (*address, patient)
        generator = make_generator(*own, "course")
        clear, series, length = generator.random(), generator.random(), int(generator.integers(4, 9))
        kind = "ambiguous" if clear < _AMBIGUOUS else "easy"
        # Repeats in the test split would only make its metrics noisier.
        is_repeated = split == "train" and kind == "easy" and series < _SERIES / (1 - _AMBIGUOUS)
        cases += [
            Case(
                id=f"{site}-{split}-{len(cases) + take:06d}",
                patient=f"{site}-{split}-p{patient:06d}",
                split=split,
                kind="redundant" if take else kind,
                initial=split == "train" and make_generator(*own, take, "given").random() < given,
                address=own,
                take=take,
                rank=(start + patient * _GOLDEN) % 1.0,
            )
            for take in range(length if is_repeated else 1)
        ]
    return cases[:count]


def make_generator(*address: str | int) -> np.random.Generator:
    """Make a generator that depends on its address only, not on earlier draws.

    >>> float(make_generator(0, "alder").random()) == float(make_generator(0, "alder").random())
    True
    """
    digest = hashlib.blake2b("\0".join(map(str, address)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


@dataclass(frozen=True)
class Canvas:
    """Coordinates [H, W] to draw on, those of an image or of an object in it, and the generator to draw with."""

    generator: np.random.Generator
    x: Field
    y: Field

    @classmethod
    def of_size(cls, generator: np.random.Generator, size: int) -> Canvas:
        """Make the canvas of a square image; its pixel centres have coordinates in [-1, 1]."""
        axis = (np.arange(size) + 0.5) * 2 / size - 1
        return cls(generator, *np.meshgrid(axis, axis))

    @property
    def pixel(self) -> float:
        """Return the width of a pixel."""
        return 2 / len(self.x)

    def rotate(self, angle: float, *, shift: Sequence[float] | Field = (0.0, 0.0), scale: float = 1.0) -> Canvas:
        """Return the canvas of an object that is rotated by `angle`, moved by `shift` and enlarged by `scale`."""
        cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
        x, y = self.x - shift[0], self.y - shift[1]
        return Canvas(self.generator, cos * x + sin * y, cos * y - sin * x)

    def noise(self, cells: int) -> Field:
        """Draw smooth noise of about unit variance, with `cells` bumps over [-1, 1]."""
        from scipy import ndimage  # 0.3 s, which a run on prepared data need not pay

        lattice = self.generator.standard_normal((2 * cells + 4, 2 * cells + 4))
        places = np.stack([(self.y + 2) * cells / 2 + 1.5, (self.x + 2) * cells / 2 + 1.5])
        values: Field = ndimage.map_coordinates(lattice, places, order=2, prefilter=False, mode="mirror")
        # Quadratic B-splines reduce the deviation of white noise to 0.55.
        return values / 0.55

    def places(self, count: int, *, radius: float) -> Field:
        """Draw random places [count, 2], uniformly over a disc."""
        angle = self.generator.uniform(0, 2 * np.pi, count)
        reach = radius * np.sqrt(self.generator.random(count))
        return np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)

    def distances(self, places: Field) -> Field:
        """Compute the distances [k, H, W] to places [k, 2]."""
        away: Field = np.hypot(self.x - places[:, :1, None], self.y - places[:, 1:, None])
        return away

    def spots(self, places: Field, radii: Field) -> Field:
        """Draw the union of soft discs at places [k, 2] with radii [k]; 1 at their centres, 0 outside."""
        far = (self.x - places[:, :1, None]) ** 2 + (self.y - places[:, 1:, None]) ** 2
        values: Field = np.exp(-((far / radii[:, None, None] ** 2) ** 1.5)).max(axis=0)
        return values


def soft_step(value: Field, *, width: float) -> Field:
    """Compute a soft step from 0 to 1 around zero, about `width` wide."""
    rising: Field = 0.5 + 0.5 * np.tanh(2 * value / width)
    return rising


def draw_line(distance: Field, *, width: float) -> Field:
    """Draw a line: 1 where `distance` is zero, falling to 0 about `width` away."""
    profile: Field = np.exp(-((distance / width) ** 2))
    return profile


def paint(image: Field, colour: Field, cover: Field) -> Field:
    """Paint a colour (or an image) over an image [3, H, W] where `cover` [H, W] is 1."""
    layer = colour[:, None, None] if colour.ndim == 1 else colour
    return image + (layer - image) * cover


class Camera(NamedTuple):
    """The properties of a site's camera; blur and grain are in pixels, blur in those of a 32-pixel image."""

    cast: tuple[float, float, float]
    contrast: float
    gamma: float
    saturation: float
    blur: float
    noise: float
    grain: float
    vignette: float
    zoom: float


_CAMERAS = {  # in the order of the fields
    "alder": Camera((1.0, 1.0, 1.0), 1.0, 1.0, 1.0, 0.0, 0.012, 0.0, 0.0, 1.0),
    "birch": Camera((0.86, 0.98, 1.12), 0.74, 0.8, 0.75, 0.5, 0.01, 0.0, 0.15, 0.84),
    "cedar": Camera((1.12, 0.93, 0.74), 1.22, 1.25, 1.15, 0.25, 0.022, 0.6, 0.75, 1.06),
    "dogwood": Camera((1.06, 0.86, 1.02), 0.92, 1.15, 0.6, 0.0, 0.035, 0.0, 0.4, 1.25),
}


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


def photograph(image: Field, camera: Camera, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Apply a camera to an image [3, H, W] with values about [0, 1], and convert it to 8 bits."""
    from scipy import ndimage

    size = image.shape[-1]
    grey = image.mean(axis=0)
    image = grey + camera.saturation * (image - grey)
    image = 0.55 + camera.contrast * (image - 0.55)
    image = np.clip(image, 0.0, 1.0) ** camera.gamma * np.array(camera.cast)[:, None, None]
    if camera.vignette:
        image = image * (
            1
            - camera.vignette
            / (1 + np.exp(-10 * (Canvas.of_size(generator, size).distances(np.zeros((1, 2))) - 1.12)))
        )
    if camera.blur:
        spread = camera.blur * size / 32
        image = ndimage.gaussian_filter(image, (0, spread, spread), truncate=2.5)
    light, colour = generator.standard_normal((1, size, size)), generator.standard_normal((3, size, size))
    noise = 0.8 * light + 0.6 * colour
    if camera.grain:
        noise = 1.8 * ndimage.gaussian_filter(noise, (0, camera.grain, camera.grain), truncate=2.5)
    pixels: NDArray[np.uint8] = (np.clip(image + camera.noise * noise, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)
    return pixels
