"""Write prepared data sets in parts; a set is complete or does not exist."""

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
from feal.data.labels import NO_LABEL, class_range_error, find_invalid_class
from feal.data.manifest import FILE, Manifest, SiteRecord, check_name, read_manifest
from feal.data.prepared import IMAGES, LABELS
from feal.data.resize import Fitting
from feal.data.samples import COLUMNS, FOLDER, no_training_sample_error, write_samples
from feal.data.verify import compute_checksum, verify
from feal.errors import FealError
from feal.fileio import write_bytes, write_error
from feal.settings import Task


class SiteWriter:
    """A writer of one site's samples; created by `PreparedWriter.site`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        folder.mkdir()
        self.name = folder.name
        self._folder = folder
        self._manifest = manifest
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._unlabelled = 0
        size = (manifest.height, manifest.width)
        self._images = ArrayWriter(folder / IMAGES, row=(manifest.channels, *size), dtype=manifest.dtype)
        is_class = manifest.task == "classification"
        try:
            self._labels = ArrayWriter(
                folder / LABELS, row=() if is_class else size, dtype="int16" if is_class else "uint8"
            )
        except OSError:
            self._images.close(sync=False)
            raise

    def append(
        self,
        *,
        ids: Sequence[str],
        images: NDArray[Any],
        labels: NDArray[np.integer],
        splits: Sequence[str],
        patients: Sequence[str] | None = None,
        initial: Sequence[bool] | None = None,
        sources: Sequence[str] | None = None,
        labelled: Sequence[bool] | None = None,
    ) -> None:
        """Append b samples: images [b, C, H, W] of the set's type, labels [b] or masks [b, H, W].

        Args:
            ids: unique within the site.
            images: pixels of the set's type and size.
            labels: class numbers; replaced by `NO_LABEL` where `labelled` is false.
            splits: "train" or "test".
            patients: by default every sample is a separate patient.
            initial: whether a sample is labelled from the start; by default none is.
            sources: the original file of each sample.
            labelled: whether a sample has a label; test samples must.

        Raises:
            FealError: wrong shape or type, a class out of range, a pixel that is not finite, or a test sample
                without a label.
        """
        self._check_images(ids, images)
        if labelled is not None and not all(labelled):
            self._check_unlabelled(ids, splits, labelled)
            labels = labels.copy()
            labels[~np.asarray(labelled)] = NO_LABEL[self._manifest.task]
            self._unlabelled += len(ids) - sum(labelled)
        self._check_labels(ids, labels, np.ones(len(ids), np.bool_) if labelled is None else np.asarray(labelled))
        added: dict[str, Sequence[Any]] = {
            "id": ids,
            "split": splits,
            "patient": ids if patients is None else patients,
            "given": [False] * len(ids) if initial is None else initial,
            "source": [""] * len(ids) if sources is None else sources,
        }
        for name, values in added.items():
            if len(values) != len(ids):
                raise ValueError(f"{len(values)} values of {name} for {len(ids)} ids")
            self._columns[name].extend(values)
        try:
            self._images.append(images)
            self._labels.append(labels)
        except OSError as error:
            raise write_error(self._folder, error) from error

    def close(self, *, sync: bool = True) -> None:
        """Close the arrays."""
        self._images.close(sync=sync)
        self._labels.close(sync=sync)

    def finish(self) -> SiteRecord:
        """Write the sample table and return the site's record for the manifest."""
        self.close()
        if not self._columns["id"]:
            raise no_training_sample_error(self.name)
        write_samples(self._folder / FOLDER, site=self.name, columns=self._columns)
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
        _sync_folder(self._folder / FOLDER)
        _sync_folder(self._folder)
        return SiteRecord(
            samples=self._images.rows,
            unlabelled=self._unlabelled,
            checksums={path.relative_to(self._folder).as_posix(): compute_checksum(path) for path in files},
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
                "repair the image or leave it out."
            )

    def _check_unlabelled(self, ids: Sequence[str], splits: Sequence[str], labelled: Sequence[bool]) -> None:
        for sample, split, known in zip(ids, splits, labelled, strict=True):
            if not known and split == "test":
                raise FealError(
                    f"The test sample '{sample}' of site '{self.name}' has no label: label it or leave it out."
                )

    def _check_labels(self, ids: Sequence[str], labels: NDArray[np.integer], known: NDArray[np.bool_]) -> None:
        expected = (len(ids), *self._labels.row)
        if labels.shape != expected or labels.dtype.kind not in "iu":
            raise FealError(
                f"Labels or masks of site '{self.name}' are {labels.dtype} of shape {labels.shape}, but whole "
                f"numbers of shape {expected} are needed: convert them before writing."
            )
        bad = find_invalid_class(labels[known], len(self._manifest.classes))
        if bad is not None:
            sample, value = bad
            name = ids[int(np.flatnonzero(known)[sample])]
            raise class_range_error(value, sample=name, site=self.name, classes=self._manifest.classes)


class PreparedWriter:
    """A writer of a prepared data set, which is moved to `root` when it is complete.

    Use it as a context manager; an exception leaves nothing behind. If another process has written the same set
    meanwhile, that one is kept.

    Raises:
        FealError: `root` holds something else, or cannot be written.
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
        check_target(root, self._facts)
        self._partial = root.with_name(f".{root.name}.{uuid.uuid4().hex}.partial")
        try:
            self._partial.mkdir(parents=True)
        except OSError as error:
            raise write_error(self._partial, error) from error

    def site(self, name: str) -> SiteWriter:
        """Start a site; sites may be filled in any order."""
        check_name(name, "site")
        if name in self._sites:
            raise FealError(f"The site '{name}' occurs twice: give every site a unique name.")
        try:
            self._sites[name] = SiteWriter(self._partial / name, Manifest(**self._facts, sites={}))
        except OSError as error:
            raise write_error(self._partial / name, error) from error
        return self._sites[name]

    def __enter__(self) -> PreparedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as failure:
            raise write_error(self.root, failure) from failure
        finally:
            for site in self._sites.values():
                site.close(sync=False)
            shutil.rmtree(self._partial, ignore_errors=True)

    def _finish(self) -> None:
        if not self._sites:
            raise FealError(f"The data set {self.root} has no site: add at least one.")
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
            raise other_set_error(self.root)
        verify(self.root)


def check_target(root: Path, facts: Mapping[str, Any]) -> None:
    """Raise a `FealError` if a set with these facts cannot be written there; call it before hours of decoding."""
    problem = Manifest(**facts, sites={"any": SiteRecord(samples=1, checksums={})}).find_problem()
    if problem:
        raise FealError(f"The data set {root} cannot be written, {problem}: correct it and try again.")
    taken = root.is_file() or (root.is_dir() and any(root.iterdir()))
    if taken and not (root / FILE).is_file():
        raise FealError(f"{root} exists and is not a prepared data set: choose another folder.")


class OtherSetError(FealError):
    """The target folder holds another data set."""


def other_set_error(root: Path) -> OtherSetError:
    """Return the error for a target folder that holds another data set."""
    return OtherSetError(f"{root} already holds another prepared data set: remove it or choose another folder.")


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
