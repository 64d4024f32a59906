"""Read prepared data sets, the only way in which images and labels reach a site."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import REPAIR, StoredArray
from feal.data.manifest import Manifest, read_manifest
from feal.data.samples import SAMPLE_FOLDER, SPLITS, Rows, SampleTable, Texts, open_samples
from feal.errors import FealError, unknown_name_error
from feal.settings import Task

if TYPE_CHECKING:  # preparing a data set does without
    import torch

IMAGE_FILE = "images.npy"
LABEL_FILE = "truth.npy"  # the name is part of every manifest's digest

SCALE = {"uint8": 255.0, "uint16": 65535.0}
"""Divisors that scale stored integers to [0, 1]."""
NO_LABEL = {"classification": -1, "segmentation": 255}
"""The value of an unlabelled sample: its class, or every pixel of its mask."""

_LABEL_KINDS = ("uint8", "int16", "int64")
_CHUNK = 16 * 2**20


class PreparedSite(SampleTable):
    """The sample table and the images of one site; its labels are opened separately (see `open_labels`).

    Opening checks the array headers and the table and reads no image.

    Raises:
        FealError: a file is missing, truncated or of another shape, an id occurs twice, or no training sample.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        manifest: Manifest,
        *,
        validation: float | None = None,
        redraw: tuple[float, int] | None = None,
    ) -> None:
        record = manifest.sites[name]
        self.folder = root / name
        self.task: Task = manifest.task
        self.classes = manifest.classes
        self.shape = (manifest.channels, manifest.height, manifest.width)
        self.unlabelled = record.unlabelled
        """The number of training samples without a label."""
        table = open_samples(self.folder / SAMPLE_FOLDER, site=name, samples=record.samples)
        if redraw is not None:
            share, seed = redraw
            table = table.redraw_test(share, seed, labelled_only=self.unlabelled > 0)
        if validation is not None:
            table = table.hold_out_validation(validation, labelled_only=self.unlabelled > 0)
        super().__init__(name, table.columns)
        self._images = StoredArray(
            self.folder / IMAGE_FILE, shape=(record.samples, *self.shape), kinds=(manifest.dtype,)
        )

    def __len__(self) -> int:
        return len(self._images.array)

    def images(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """Read the images of these samples, float32 [b, C, H, W] in the order of `ids`; see `read`."""
        return self.read(self.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """Read the images at these array rows, float32 [b, C, H, W]; stored integers are scaled to [0, 1].

        Raises:
            FealError: a float16 image has a pixel that is not finite; the error names the sample and the site.
        """
        import torch

        stored = self._images.read(rows)
        check_finite(stored, rows, site=self.name, id_at=self.id_at)
        return torch.from_numpy(scale_pixels(stored))


class SiteLabels:
    """The hidden labels [n] or masks [n, H, W] of one site, read a few at a time.

    Only the oracle, the evaluation and the contact sheet open them.
    """

    def __init__(self, site: PreparedSite, stored: StoredArray) -> None:
        self.site = site
        self._stored = stored

    def of(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """Return labels int64 [b], or masks uint8 [b, H, W], of these samples in this order."""
        return self.read(self.site.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """Return the same by array row (`PreparedSite.rows`)."""
        import torch

        values = self._stored.read(rows)
        if values.ndim == 1 or values.dtype != np.uint8:
            values = values.astype(np.int64)
        return torch.from_numpy(values)

    def is_known(self, ids: Sequence[str] | Texts) -> NDArray[np.bool_]:
        """Return whether each of these samples has a label."""
        rows = self.site.rows(ids)
        if not self.site.unlabelled:
            return np.ones(len(rows), dtype=np.bool_)
        # One pixel is enough: no class has this number.
        first = self._stored.array.reshape(len(self.site), -1)[:, 0][rows]
        known: NDArray[np.bool_] = first != NO_LABEL[self.site.task]
        return known

    def check(self) -> None:
        """Raise a `FealError` that names the first sample with a value outside 0..C-1.

        Only training samples that the manifest counts as unlabelled may hold `NO_LABEL`. Masks are read in chunks.
        """
        site, train = self.site, self.site.ids("train")
        known = np.ones(len(site), dtype=np.bool_)
        known[site.rows(train)] = self.is_known(train)
        if int((~known).sum()) != site.unlabelled:
            raise FealError(
                f"Site '{site.name}' has {int((~known).sum())} training samples without a label, but the "
                f"manifest counts {site.unlabelled}: {REPAIR}."
            )
        for rows, values in self._read_chunks():
            # NO_LABEL throughout is no class, but valid for an unlabelled sample.
            checked = known[rows] | (values != NO_LABEL[site.task]).any(axis=1)
            check_classes(
                values[checked], rows[checked], classes=len(site.classes), site=site.name, id_at=site.id_at
            )

    def count_classes(self) -> dict[str, NDArray[np.int64]]:
        """Count by split the samples of each class (or whose mask shows it), and last the unlabelled: [C + 1].

        Labels are read a few megabytes at a time.
        """
        numbers = [*range(len(self.site.classes)), NO_LABEL[self.site.task]]
        has_class = np.concatenate(
            [
                np.stack([(values == number).any(axis=1) for number in numbers], axis=1)
                for _, values in self._read_chunks()
            ]
        )
        return {split: has_class[self.site.rows(self.site.ids(split))].sum(axis=0) for split in SPLITS}

    def _read_chunks(self) -> Iterator[tuple[Rows, NDArray[np.integer]]]:
        """Yield all rows and their values [b, pixels], a few megabytes at a time."""
        size = self._stored.array[0].nbytes
        step = max(1, _CHUNK // size)
        for start in range(0, len(self.site), step):
            rows = np.arange(start, min(start + step, len(self.site)), dtype=np.int64)
            yield rows, self._stored.read(rows).reshape(len(rows), -1)


class PreparedSet:
    """A prepared data set: the facts of its manifest, and its sites by name."""

    def __init__(self, root: Path, manifest: Manifest, digest: str) -> None:
        self.root = root
        self.manifest = manifest
        self.digest = digest
        self.name = manifest.name
        self.task: Task = manifest.task
        self.classes = manifest.classes
        self.regions = manifest.metric_regions
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

    def site(
        self, name: str, *, validation: float | None = None, redraw: tuple[float, int] | None = None
    ) -> PreparedSite:
        """Open one site; an unknown name or a damaged site is a `FealError`.

        With `redraw` that share of all samples, drawn by that seed, becomes the test split; with `validation` that
        share of the training split replaces the test split, see `SampleTable`.
        """
        if name not in self.manifest.sites:
            raise unknown_name_error(f"site in {self.root}", name, self.sites)
        if not (self.root / name).is_dir():
            raise FealError(f"The folder {self.root / name} of site '{name}' is missing: {REPAIR}.")
        return PreparedSite(self.root, name, self.manifest, validation=validation, redraw=redraw)


def open_prepared(root: Path | str) -> PreparedSet:
    """Open a prepared data set; reads the manifest only, `PreparedSet.site` opens a site.

    Raises:
        FealError: the manifest is missing, damaged or of another format.
    """
    manifest, digest = read_manifest(Path(root))
    return PreparedSet(Path(root), manifest, digest)


def open_labels(site: PreparedSite) -> SiteLabels:
    """Open the labels of a site; a missing or truncated file is a `FealError`."""
    shape = (len(site),) if site.task == "classification" else (len(site), *site.shape[1:])
    return SiteLabels(site, StoredArray(site.folder / LABEL_FILE, shape=shape, kinds=_LABEL_KINDS))


def scale_pixels(stored: NDArray[Any]) -> NDArray[np.float32]:
    """Convert stored pixels to the float32 values that a network receives: integers are divided by `SCALE`.

    >>> scale_pixels(np.array([0, 255], dtype=np.uint8))
    array([0., 1.], dtype=float32)
    """
    images = stored.astype(np.float32)
    if stored.dtype.name in SCALE:
        images /= np.float32(SCALE[stored.dtype.name])
    return images


def check_finite(images: NDArray[Any], rows: Rows, *, site: str, id_at: Callable[[int], str]) -> None:
    """Raise a `FealError` that names the first of images [b, ...] at rows [b] with a pixel that is not finite."""
    if images.dtype.kind == "f" and not (finite := np.isfinite(images)).all():
        first = int(rows[np.argwhere(~finite)[0][0]])
        raise FealError(
            f"Sample '{id_at(first)}' of site '{site}' has a pixel that is not a finite number: "
            "repair or leave out the image and prepare the data set again."
        )


def check_classes(
    values: NDArray[np.integer], rows: Rows, *, classes: int, site: str, id_at: Callable[[int], str]
) -> None:
    """Raise a `FealError` that names the first of values [b, ...] at rows [b] outside 0..C-1."""
    places = np.argwhere((values < 0) | (values >= classes))
    if len(places):
        sample, value = id_at(int(rows[places[0][0]])), values[tuple(places[0])]
        raise FealError(
            f"Sample '{sample}' of site '{site}' has the class value {value}, but the {classes} classes are "
            f"0 to {classes - 1}: correct its label or mask and prepare the data set again."
        )
