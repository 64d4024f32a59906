"""Read prepared data sets, the only way in which images reach a site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.arrays import REPAIR, StoredArray
from feal.data.manifest import Manifest, SiteRecord, read_manifest
from feal.data.samples import FOLDER, Rows, Texts, hold_out_validation, open_samples
from feal.errors import FealError, unknown_name_error
from feal.settings import Task

IMAGES = "images.npy"
LABELS = "truth.npy"  # the name is part of every manifest's digest

SCALE = {"uint8": 255.0, "uint16": 65535.0}
"""Divisors that scale stored integers to [0, 1]."""


class PreparedSite:
    """The images and the sample table of one site; its labels are opened separately (see `open_labels`).

    Opening checks the array headers and the table and reads no image.

    Raises:
        FealError: a file is missing, truncated or of another shape, an id occurs twice, or no training sample.
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
        """The number of training samples without a label."""
        table = open_samples(self.folder / FOLDER, site=name, samples=record.samples)
        if validation is not None:
            table = hold_out_validation(table, validation, labelled_only=self.unlabelled > 0)
        self._table = table
        self._dtype = manifest.dtype
        self._images = StoredArray(
            self.folder / IMAGES, shape=(record.samples, *self.shape), kinds=(manifest.dtype,)
        )

    def __len__(self) -> int:
        return len(self._images.array)

    def ids(self, split: str | None = None) -> Texts:
        """Return the sample ids of a split ("train", "test", or None for all), sorted."""
        return self._table.texts("id", split)

    def patients(self, split: str | None = None) -> Texts:
        """Return the patient of each of `ids(split)`."""
        return self._table.texts("patient", split)

    def sources(self, split: str | None = None) -> Texts:
        """Return the original file of each of `ids(split)`."""
        return self._table.texts("source", split)

    def is_initial(self, split: str | None = None) -> NDArray[np.bool_]:
        """Return whether each of `ids(split)` is labelled from the start."""
        initial: NDArray[np.bool_] = self._table.columns["given"][self._table.is_in(split)]
        return np.array(initial)

    def rows(self, ids: Sequence[str] | Texts) -> Rows:
        """Return the array rows of these samples; an unknown id is a `FealError`."""
        return self._table.rows(ids)

    def id_at(self, row: int) -> str:
        """Return the id of the sample at an array row."""
        return self._table.id_at(row)

    def images(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """Read the images of these samples, float32 [b, C, H, W] in the order of `ids`; see `read`."""
        return self.read(self.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """Read the images at these array rows, float32 [b, C, H, W]; stored integers are scaled to [0, 1].

        Raises:
            FealError: a float16 image has a pixel that is not finite; the error names the sample and the site.
        """
        stored = self._images.read(rows)
        if self._dtype == "float16":
            self._check_finite(stored, rows)
        return torch.from_numpy(scale_pixels(stored))

    def _check_finite(self, images: NDArray[np.float16], rows: Rows) -> None:
        finite = np.isfinite(images)
        if not finite.all():
            first = int(np.flatnonzero(~finite.reshape(len(images), -1).all(axis=1))[0])
            raise FealError(
                f"Sample '{self.id_at(int(rows[first]))}' of site '{self.name}' has a pixel that is not a "
                "finite number: repair or leave out the image and prepare the data set again."
            )


class PreparedSet:
    """A prepared data set: the facts of its manifest, and its sites by name."""

    def __init__(self, root: Path, manifest: Manifest, digest: str) -> None:
        self.root = root
        self.manifest = manifest
        self.digest = digest
        self.name = manifest.name
        self.task: Task = manifest.task
        self.classes = manifest.classes
        self.regions = resolve_regions(manifest)
        self.channels = manifest.channels
        self.height = manifest.height
        self.width = manifest.width
        self.sites = sorted(manifest.sites)

    def select_sites(self, sites: Sequence[str] | None) -> list[str]:
        """Return these sites, sorted and each once, or all of them; an absent site is a `FealError`."""
        absent = sorted(set(sites or ()) - set(self.sites))
        if absent:
            rest = ",".join(sorted(set(sites or ()) - set(absent)) or self.sites)
            raise FealError(
                f"{self.root} has no site {' and '.join(absent)}, only {', '.join(self.sites)}: prepare a download"
                f" that has {'it' if len(absent) == 1 else 'them'}, or continue without by 'sites=[{rest}]'."
            )
        return self.sites if sites is None else sorted(set(sites))

    def site(self, name: str, *, validation: float | None = None) -> PreparedSite:
        """Open one site; an unknown name or a damaged site is a `FealError`.

        With `validation` that share of the training split replaces the test split (see `hold_out_validation`).
        """
        if name not in self.manifest.sites:
            raise unknown_name_error(f"site in {self.root}", name, self.sites)
        folder = self.root / name
        if not folder.is_dir():
            raise FealError(f"The folder {folder} of site '{name}' is missing: {REPAIR}.")
        return PreparedSite(self.root, name, self.manifest, self.manifest.sites[name], validation=validation)


def resolve_regions(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Return what segmentation metrics are computed for: the manifest's regions, or each class but the first."""
    if manifest.task != "segmentation":
        return {}
    return dict(manifest.regions) or {name: (number,) for number, name in enumerate(manifest.classes) if number}


def open_prepared(root: Path | str) -> PreparedSet:
    """Open a prepared data set; reads the manifest only, `PreparedSet.site` opens a site.

    Raises:
        FealError: the manifest is missing, damaged or of another format.
    """
    manifest, digest = read_manifest(Path(root))
    return PreparedSet(Path(root), manifest, digest)


def scale_pixels(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Convert stored pixels to the float32 values that a network receives: integers are divided by `SCALE`.

    >>> scale_pixels(np.array([0, 255], dtype=np.uint8))
    array([0., 1.], dtype=float32)
    """
    images = stored.astype(np.float32)
    if stored.dtype.name in SCALE:
        images /= np.float32(SCALE[stored.dtype.name])
    return images
