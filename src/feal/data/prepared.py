"""Prepared data sets: the one way by which images reach a site."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.arrays import AGAIN, StoredArray
from feal.data.folds import held_out
from feal.data.manifest import Manifest, SiteRecord, read_manifest
from feal.data.samples import COLUMNS, FOLDER, Rows, Texts, open_samples
from feal.errors import FealError, unknown
from feal.settings import Task

IMAGES = "images.npy"
TRUTH = "truth.npy"

SCALE = {"uint8": 255.0, "uint16": 65535.0}
"""What a stored value is divided by, so that integers cover [0, 1]."""

Checksum = Callable[[Path], str]
"""The SHA-256 of a file."""


class PreparedSite:
    """Images and sample table of one site; the labels are not in reach from here (see `open_truth`).

    Opening checks headers and the table and reads no image.

    Raises:
        FealError: a file is missing, cut short or of another shape, an id is twice, nothing to train on.
    """

    def __init__(
        self, root: Path, name: str, manifest: Manifest, record: SiteRecord, *, validation: float | None = None
    ) -> None:
        self.name = name
        self.folder = root / name
        self.task: Task = manifest.task
        self.classes = manifest.classes
        self.shape = (manifest.channels, manifest.height, manifest.width)
        self.unlabelled = record.unlabelled
        """How many of the training samples nobody has labelled."""
        table = open_samples(self.folder / FOLDER, site=name, samples=record.samples)
        if validation is not None:
            table = held_out(table, validation, labelled_only=self.unlabelled > 0)
        self._table = table
        self._dtype = manifest.dtype
        self._images = StoredArray(
            self.folder / IMAGES, shape=(record.samples, *self.shape), kinds=(manifest.dtype,)
        )

    def __len__(self) -> int:
        return len(self._images.array)

    def ids(self, split: str | None = None) -> Texts:
        """Sample ids of a split ("train", "test", or all), sorted."""
        return self._table.texts("id", split)

    def patients(self, split: str | None = None) -> Texts:
        """The patient of each of `ids(split)`."""
        return self._table.texts("patient", split)

    def sources(self, split: str | None = None) -> Texts:
        """Where each of `ids(split)` comes from."""
        return self._table.texts("source", split)

    def given(self, split: str | None = None) -> NDArray[np.bool_]:
        """Whether each of `ids(split)` is labelled from the start."""
        given: NDArray[np.bool_] = self._table.columns["given"][self._table.of_split(split)]
        return np.array(given)

    def rows(self, ids: Sequence[str] | Texts) -> Rows:
        """Where the arrays hold these samples; an unknown id is a `FealError`."""
        return self._table.rows(ids)

    def id_at(self, row: int) -> str:
        """The id of the sample at that place in the arrays."""
        return self._table.id_at(row)

    def images(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """The images of these samples, float32 [b, C, H, W] in the order of `ids`; see `read`."""
        return self.read(self.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """The images at these places, float32 [b, C, H, W]; stored integers are scaled to [0, 1].

        Raises:
            FealError: a float16 image holds a pixel that is no finite number; it names sample and site.
        """
        stored = self._images.read(rows)
        if self._dtype == "float16":
            self._check_finite(stored, rows)
        return torch.from_numpy(scaled(stored))

    def _check_finite(self, images: NDArray[np.float16], rows: Rows) -> None:
        finite = np.isfinite(images)
        if not finite.all():
            first = int(np.flatnonzero(~finite.reshape(len(images), -1).all(axis=1))[0])
            raise FealError(
                f"Sample '{self.id_at(int(rows[first]))}' of site '{self.name}' has a pixel that is not a "
                "finite number: mend or leave out the image and prepare the data set again."
            )


class PreparedSet:
    """A prepared data set: the manifest's facts, and its sites by name."""

    def __init__(self, root: Path, manifest: Manifest, digest: str) -> None:
        self.root = root
        self.manifest = manifest
        self.digest = digest
        self.name = manifest.name
        self.task: Task = manifest.task
        self.classes = manifest.classes
        self.regions = regions_of(manifest)
        self.channels = manifest.channels
        self.height = manifest.height
        self.width = manifest.width
        self.sites = sorted(manifest.sites)

    def named(self, sites: Sequence[str] | None) -> list[str]:
        """These sites, sorted and each once, or all; one that is not there is a `FealError`."""
        absent = sorted(set(sites or ()) - set(self.sites))
        if absent:
            rest = ",".join(sorted(set(sites or ()) - set(absent)) or self.sites)
            raise FealError(
                f"{self.root} has no site {' and '.join(absent)}, only {', '.join(self.sites)}: prepare a download"
                f" that has {'it' if len(absent) == 1 else 'them'}, or go on without by 'sites=[{rest}]'."
            )
        return self.sites if sites is None else sorted(set(sites))

    def site(self, name: str, *, validation: float | None = None) -> PreparedSite:
        """Open one site; an unknown name or a damaged site is a `FealError`.

        `validation` puts that share of the training part in the place of the test part (see `held_out`).
        """
        if name not in self.manifest.sites:
            raise unknown(f"site in {self.root}", name, self.sites)
        folder = self.root / name
        if not folder.is_dir():
            raise FealError(f"The folder {folder} of site '{name}' is missing: {AGAIN}.")
        return PreparedSite(self.root, name, self.manifest, self.manifest.sites[name], validation=validation)


def regions_of(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """What segmentation figures are given for: the manifest's regions, or each class but the first."""
    if manifest.task != "segmentation":
        return {}
    return dict(manifest.regions) or {name: (number,) for number, name in enumerate(manifest.classes) if number}


def open_prepared(root: Path | str) -> PreparedSet:
    """Open a prepared data set; reads the manifest only, sites are opened by `PreparedSet.site`.

    Raises:
        FealError: no manifest, one of another format, or a damaged one.
    """
    manifest, digest = read_manifest(Path(root))
    return PreparedSet(Path(root), manifest, digest)


def scaled(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Stored pixels as a network gets them: float32, integers divided by `SCALE`.

    >>> scaled(np.array([0, 255], dtype=np.uint8))
    array([0., 1.], dtype=float32)
    """
    images = stored.astype(np.float32)
    if stored.dtype.name in SCALE:
        images /= np.float32(SCALE[stored.dtype.name])
    return images


def verify(root: Path | str) -> None:
    """Read every file of a prepared set and compare it with its checksum in the manifest.

    Raises:
        FealError: a file is missing or differs, or the set cannot be opened.
    """
    prepared = open_prepared(root)
    for name in prepared.sites:
        prepared.site(name)
        check_files(prepared, name)


def file_checksum(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(
    prepared: PreparedSet, site: str, *, only: str | None = None, checksum: Checksum = file_checksum
) -> None:
    """Raise a `FealError` if a file of a site, or `only` that one, is missing or differs from its checksum."""
    for path in altered_files(prepared, site, only=only, checksum=checksum):
        raise FealError(
            f"The file {path} is not the one that was prepared (missing, or its checksum differs): {AGAIN}."
        )


def altered_files(
    prepared: PreparedSet, site: str, *, only: str | None = None, checksum: Checksum = file_checksum
) -> Iterator[Path]:
    """The files of a site, or `only` that one, that are missing or not those of a checksum in the manifest."""
    checksums = prepared.manifest.sites[site].checksums
    expected = (IMAGES, TRUTH, *(f"{FOLDER}/{name}.npy" for name in COLUMNS))
    for file in sorted({*expected, *checksums} if only is None else {only}):
        path = prepared.root / site / file
        if not path.is_file() or checksum(path) != checksums.get(file):
            yield path
