"""Writing a prepared data set: in parts, and either whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import ArrayWriter
from feal.data.fitting import Fitting
from feal.data.manifest import FILE, Manifest, SiteRecord, check_name, read_manifest
from feal.data.prepared import IMAGES, TRUTH, file_checksum, verify
from feal.data.samples import COLUMNS, FOLDER, no_training_sample, write_samples
from feal.data.truth import UNKNOWN, out_of_range, outside
from feal.errors import FealError
from feal.files import unwritable, write_bytes
from feal.settings import Task


class SiteWriter:
    """Takes the samples of one site; made by `PreparedWriter.site`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        folder.mkdir()
        self.name = folder.name
        self._folder = folder
        self._manifest = manifest
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._unlabelled = 0
        size = (manifest.height, manifest.width)
        self._images = ArrayWriter(folder / IMAGES, row=(manifest.channels, *size), dtype=manifest.dtype)
        labels = manifest.task == "classification"
        try:
            self._truth = ArrayWriter(
                folder / TRUTH, row=() if labels else size, dtype="int16" if labels else "uint8"
            )
        except OSError:
            self._images.close(sync=False)
            raise

    def append(
        self,
        *,
        ids: Sequence[str],
        images: NDArray[Any],
        truth: NDArray[np.integer],
        splits: Sequence[str],
        patients: Sequence[str] | None = None,
        given: Sequence[bool] | None = None,
        sources: Sequence[str] | None = None,
        labelled: Sequence[bool] | None = None,
    ) -> None:
        """Add b samples: images [b, C, H, W] of the set's type, truth as labels [b] or masks [b, H, W].

        Without `patients` every sample is a patient of its own, without `given` none is labelled at first.
        Where `labelled` says that nobody has labelled a training sample, its truth is replaced by `UNKNOWN`.

        Raises:
            FealError: another shape or type than the set's, a class out of range, a pixel that is not finite, a
                test sample without a label.
        """
        self._check_images(ids, images)
        if labelled is not None and not all(labelled):
            self._check_unlabelled(ids, splits, labelled)
            truth = truth.copy()
            truth[~np.asarray(labelled)] = UNKNOWN[self._manifest.task]
            self._unlabelled += len(ids) - sum(labelled)
        self._check_truth(ids, truth, np.ones(len(ids), np.bool_) if labelled is None else np.asarray(labelled))
        added: dict[str, Sequence[Any]] = {
            "id": ids,
            "split": splits,
            "patient": ids if patients is None else patients,
            "given": [False] * len(ids) if given is None else given,
            "source": [""] * len(ids) if sources is None else sources,
        }
        for name, values in added.items():
            if len(values) != len(ids):
                raise ValueError(f"{len(values)} values of {name} for {len(ids)} ids")
            self._columns[name].extend(values)
        try:
            self._images.append(images)
            self._truth.append(truth)
        except OSError as error:
            raise unwritable(self._folder, error) from error

    def close(self, *, sync: bool = True) -> None:
        """Close the arrays."""
        self._images.close(sync=sync)
        self._truth.close(sync=sync)

    def finish(self) -> SiteRecord:
        """Write the sample table and give the site's line of the manifest."""
        self.close()
        if not self._columns["id"]:
            raise no_training_sample(self.name)
        write_samples(self._folder / FOLDER, site=self.name, columns=self._columns)
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
        _sync_folder(self._folder / FOLDER)
        _sync_folder(self._folder)
        return SiteRecord(
            samples=self._images.rows,
            unlabelled=self._unlabelled,
            checksums={path.relative_to(self._folder).as_posix(): file_checksum(path) for path in files},
        )

    def _check_images(self, ids: Sequence[str], images: NDArray[Any]) -> None:
        expected = (len(ids), *self._images.row)
        if images.shape != expected or images.dtype.name != self._manifest.dtype:
            raise FealError(
                f"Images of site '{self.name}' are {images.dtype} of shape {images.shape}, but the set holds "
                f"{self._manifest.dtype} of shape {expected}: convert them before writing."
            )
        if images.dtype == np.float16 and not np.isfinite(images).all():
            first = int(np.flatnonzero(~np.isfinite(images).reshape(len(images), -1).all(axis=1))[0])
            raise FealError(
                f"Sample '{ids[first]}' of site '{self.name}' has a pixel that is not a finite number: "
                "mend the image or leave it out."
            )

    def _check_unlabelled(self, ids: Sequence[str], splits: Sequence[str], labelled: Sequence[bool]) -> None:
        for sample, split, known in zip(ids, splits, labelled, strict=True):
            if not known and split == "test":
                raise FealError(
                    f"The test sample '{sample}' of site '{self.name}' has no label: label it or leave it out."
                )

    def _check_truth(self, ids: Sequence[str], truth: NDArray[np.integer], known: NDArray[np.bool_]) -> None:
        expected = (len(ids), *self._truth.row)
        if truth.shape != expected or truth.dtype.kind not in "iu":
            raise FealError(
                f"Labels or masks of site '{self.name}' are {truth.dtype} of shape {truth.shape}, but whole "
                f"numbers of shape {expected} are needed: convert them before writing."
            )
        bad = outside(truth[known], len(self._manifest.classes))
        if bad is not None:
            sample, value = bad
            name = ids[int(np.flatnonzero(known)[sample])]
            raise out_of_range(value, sample=name, site=self.name, classes=self._manifest.classes)


class PreparedWriter:
    """Writes a prepared data set into a folder beside its place and moves it there when it is complete.

    Use it as a context manager; an exception leaves nothing behind. When another process has written the same
    set meanwhile, that one is kept.

    Raises:
        FealError: the place is taken by something else, or the disk refuses.
    """

    def __init__(
        self,
        root: Path,
        *,
        name: str,
        task: Task,
        classes: Sequence[str],
        channels: int,
        height: int,
        width: int,
        dtype: str = "uint8",
        source: Mapping[str, Any] | None = None,
        regions: Mapping[str, tuple[int, ...]] | None = None,
        fitting: Fitting | None = None,
    ) -> None:
        self.root = root
        self._facts: dict[str, Any] = {
            "name": name,
            "task": task,
            "classes": tuple(classes),
            "channels": channels,
            "height": height,
            "width": width,
            "dtype": dtype,
            "source": dict(source or {}),
            "regions": dict(regions or {}),
            "fitting": fitting,
        }
        self._sites: dict[str, SiteWriter] = {}
        check_facts(root, self._facts)
        self._partial = root.with_name(f".{root.name}.{uuid.uuid4().hex}.partial")
        try:
            self._partial.mkdir(parents=True)
        except OSError as error:
            raise unwritable(self._partial, error) from error

    def site(self, name: str) -> SiteWriter:
        """Begin a site; sites may be filled in any order."""
        check_name(name, "site")
        if name in self._sites:
            raise FealError(f"The site '{name}' is there twice: give every site a name of its own.")
        try:
            self._sites[name] = SiteWriter(self._partial / name, Manifest(**self._facts, sites={}))
        except OSError as error:
            raise unwritable(self._partial / name, error) from error
        return self._sites[name]

    def __enter__(self) -> PreparedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as refused:
            raise unwritable(self.root, refused) from refused
        finally:
            for site in self._sites.values():
                site.close(sync=False)
            shutil.rmtree(self._partial, ignore_errors=True)

    def _finish(self) -> None:
        if not self._sites:
            raise FealError(f"The data set {self.root} has no site: give it at least one.")
        records = {name: site.finish() for name, site in sorted(self._sites.items())}
        manifest = Manifest(**self._facts, sites=records)
        write_bytes(self._partial / FILE, manifest.encode())
        try:
            self._partial.rename(self.root)
            _sync_folder(self.root.parent)
        except OSError:
            if not self.root.exists():
                raise
            self._check_same(manifest)

    def _check_same(self, manifest: Manifest) -> None:
        if read_manifest(self.root)[0].encode() != manifest.encode():
            raise other_set(self.root)
        verify(self.root)


def check_facts(root: Path, facts: Mapping[str, Any]) -> None:
    """Raise a `FealError` if no set of these facts can be written there: now, not after hours of decoding."""
    problem = Manifest(**facts, sites={"any": SiteRecord(samples=1, checksums={})}).problem()
    if problem:
        raise FealError(f"The data set {root} cannot be written, {problem}: correct it and repeat.")
    taken = root.is_file() or (root.is_dir() and any(root.iterdir()))
    if taken and not (root / FILE).is_file():
        raise FealError(f"{root} exists and is no prepared data set: choose another folder.")


class OtherSetError(FealError):
    """The place belongs to another data set."""


def other_set(root: Path) -> OtherSetError:
    """The error for a place that another data set has."""
    return OtherSetError(f"{root} holds another prepared data set already: remove it or choose another folder.")


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
