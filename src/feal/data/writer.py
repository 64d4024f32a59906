"""Write prepared data sets in parts; a set is complete or does not exist."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from feal.data.arrays import ArrayWriter
from feal.data.manifest import MANIFEST_FILE, Manifest, SiteRecord, check_name, describe_invalid, read_manifest
from feal.data.prepared import IMAGE_FILE, LABEL_FILE, NO_LABEL, check_classes, check_finite
from feal.data.samples import SAMPLE_COLUMNS, SAMPLE_FOLDER, no_training_sample_error, write_samples
from feal.data.verify import compute_checksum, verify
from feal.errors import FealError
from feal.fileio import link_or_copy, rename_durably, sync_directory, write_bytes, write_error


class SiteWriter:
    """A writer of one site's samples; created by `PreparedWriter.site`."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        folder.mkdir()
        self.name = folder.name
        self._folder = folder
        self._manifest = manifest
        self._columns: dict[str, list[Any]] = {name: [] for name in SAMPLE_COLUMNS}
        self._unlabelled = 0
        size = (manifest.height, manifest.width)
        row, dtype = ((), "int16") if manifest.task == "classification" else (size, "uint8")
        self._images = ArrayWriter(folder / IMAGE_FILE, row=(manifest.channels, *size), dtype=manifest.dtype)
        try:
            self._labels = ArrayWriter(folder / LABEL_FILE, row=row, dtype=dtype)
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
        self._check_arrays(ids, images, labels)
        check_finite(images, np.arange(len(ids)), site=self.name, id_at=ids.__getitem__)
        known = np.ones(len(ids), np.bool_) if labelled is None else np.asarray(labelled, np.bool_)
        for sample, split, is_known in zip(ids, splits, known, strict=True):
            if split == "test" and not is_known:
                raise FealError(
                    f"The test sample '{sample}' of site '{self.name}' has no label: label it or leave it out."
                )
        classes = len(self._manifest.classes)
        check_classes(labels[known], np.flatnonzero(known), classes=classes, site=self.name, id_at=ids.__getitem__)
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
        if not known.all():
            labels = labels.astype(self._labels.dtype)
            labels[~known] = NO_LABEL[self._manifest.task]
            self._unlabelled += int((~known).sum())
        try:
            self._images.append(images)
            self._labels.append(labels)
        except OSError as error:
            raise write_error(self._folder, error) from error

    def link_arrays(self, arrays: Path, *, columns: dict[str, list[Any]], unlabelled: int) -> None:
        """Take all samples from valid arrays in a folder, complete and on disk, which are linked and not copied.

        The columns are those of `SAMPLE_COLUMNS` except `row`, in the order of the arrays' rows.
        """
        self._columns, self._unlabelled = columns, unlabelled
        self.close(sync=False)
        try:
            for name in (IMAGE_FILE, LABEL_FILE):
                link_or_copy(arrays / name, self._folder / name)
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
        write_samples(self._folder / SAMPLE_FOLDER, site=self.name, columns=self._columns)
        files = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
        sync_directory(self._folder / SAMPLE_FOLDER)
        sync_directory(self._folder)
        return SiteRecord(
            samples=len(self._columns["id"]),
            unlabelled=self._unlabelled,
            checksums={path.relative_to(self._folder).as_posix(): compute_checksum(path) for path in files},
        )

    def _check_arrays(self, ids: Sequence[str], images: NDArray[Any], labels: NDArray[Any]) -> None:
        expected = (len(ids), *self._images.row)
        if images.shape != expected or images.dtype.name != self._manifest.dtype:
            raise FealError(
                f"Images of site '{self.name}' are {images.dtype} of shape {images.shape}, but the set holds "
                f"{self._manifest.dtype} of shape {expected}: convert them before writing."
            )
        expected = (len(ids), *self._labels.row)
        if labels.shape != expected or labels.dtype.kind not in "iu":
            raise FealError(
                f"Labels or masks of site '{self.name}' are {labels.dtype} of shape {labels.shape}, but whole "
                f"numbers of shape {expected} are needed: convert them before writing."
            )


class PreparedWriter:
    """A writer of a prepared data set, which is moved to `root` when it is complete.

    Use it as a context manager; an exception leaves nothing behind. If another process has written the same set
    meanwhile, that one is kept. The facts are the fields of `Manifest` without its sites: `name`, `task`,
    `classes`, `channels`, `height`, `width`, and `dtype` if it is not uint8, `source`, `regions`, `fitting`. Up to
    `threads` sites are finished at a time.

    Raises:
        FealError: a fact is invalid, `root` holds something else, or cannot be written.
    """

    def __init__(self, root: Path, *, threads: int = 1, **facts: Any) -> None:
        self.root = root
        self._threads = threads
        self._manifest = check_target(root, **facts)
        self._sites: dict[str, SiteWriter] = {}
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
            self._sites[name] = SiteWriter(self._partial / name, self._manifest)
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
        names = sorted(self._sites)
        with ThreadPoolExecutor(self._threads) as pool:
            records = dict(zip(names, pool.map(lambda name: self._sites[name].finish(), names), strict=True))
        content = self._manifest.model_copy(update={"sites": records}).encode()
        write_bytes(self._partial / MANIFEST_FILE, content)
        try:
            rename_durably(self._partial, self.root)
        except OSError:
            if not self.root.exists():
                raise
            if read_manifest(self.root)[0].encode() != content:
                raise other_set_error(self.root) from None
            verify(self.root)


def check_target(root: Path, **facts: Any) -> Manifest:
    """Check that a set with these facts can be written there, before hours of decoding.

    Returns:
        Its manifest, with one site in place of those to come.

    Raises:
        FealError: a fact is invalid, or `root` holds something else.
    """
    sites = {"any": SiteRecord(samples=1, checksums={})}
    try:
        manifest = Manifest(**{"dtype": "uint8", "source": {}, **facts, "sites": sites})
    except ValidationError as error:
        reason = describe_invalid(error)
        raise FealError(f"The data set {root} cannot be written, {reason}: correct it and try again.") from None
    taken = root.is_file() or (root.is_dir() and any(root.iterdir()))
    if taken and not (root / MANIFEST_FILE).is_file():
        raise FealError(f"{root} exists and is not a prepared data set: choose another folder.")
    return manifest


class OtherSetError(FealError):
    """The target folder holds another data set."""


def other_set_error(root: Path) -> OtherSetError:
    """Return the error for a target folder that holds another data set."""
    return OtherSetError(f"{root} already holds another prepared data set: remove it or choose another folder.")
