"""Cache a frozen trunk's outputs on disk, for a few fixed views of every image of a site."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.backends import cpu
from torch.nn import functional as F

from feal.data import PreparedSet, PreparedSite
from feal.data.arrays import ArrayWriter, StoredArray, count_rows
from feal.data.prepared import IMAGE_FILE
from feal.data.samples import Rows
from feal.data.verify import check_files, compute_checksum
from feal.errors import FealError
from feal.fileio import lock_file, read_json, rename_durably, user_cache, write_error, write_json
from feal.models import OnnxGraph, Trunk, build_initial_model, write_graph
from feal.plugins import short_name
from feal.settings import Component, Settings, Trainable
from feal.tensors import resolve_batch_size, to_device

MAX_VIEWS = 8
MARGIN = 1 / 16
"""Share of the image that an enlarged view leaves out on every side."""
ENGINES = "onnxruntime", "torch"
_FORMAT = 1
_BLOCK = 256
"""Rows of features that are read at a time to derive others from."""

_ReadRows = Callable[[Rows], torch.Tensor]
_RunTrunk = Callable[[torch.Tensor], torch.Tensor]
Derive = Callable[[NDArray[Any]], NDArray[Any]]
Listener = Callable[[str, int, int], None]
"""Takes the site, the number of images whose features are computed, and the number of all."""

_listeners: list[Listener] = []


@contextmanager
def listen_to_progress(listener: Listener) -> Iterator[None]:
    """Have a function called after every batch of images whose features are computed in this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


class FeatureSource(Protocol):
    """What computes features from images once, for them to be cached."""

    @property
    def label(self) -> str:
        """Return what the cached files are called besides the site, without a hyphen at its ends."""

    @property
    def views(self) -> int:
        """Return how many views of every image there are features of."""

    @property
    def dtype(self) -> str:
        """Return the type that features are stored in: float32 or float16."""

    @property
    def device(self) -> torch.device:
        """Return where features are needed."""

    def identify(self) -> list[object]:
        """Return everything that the features depend on besides the images, as JSON values."""

    def open(self, data: PreparedSet, *, size: Sequence[int]) -> tuple[_RunTrunk, str]:
        """Return a function from images [b, *size] to features, and the name of the library that computes them."""


@dataclass(frozen=True, kw_only=True)
class TrunkSpec:
    """What determines a frozen trunk's outputs besides the images."""

    model: Component
    weights: str
    weights_digest: str | None
    part: Trainable
    """The part of the network that is trained; the trunk is the rest."""
    views: int
    normalise: str
    crop: int
    """Height and width of the centre that the trunk sees; 0: the whole image."""
    threads: int
    device: torch.device

    @classmethod
    def from_settings(cls, settings: Settings, *, device: torch.device) -> TrunkSpec:
        """Read the trunk from a run's settings."""
        return cls(
            model=settings.model,
            weights=settings.weights,
            weights_digest=settings.weights_digest,
            part=settings.training.trainable,
            views=settings.training.views,
            normalise=settings.transforms.normalise,
            crop=settings.transforms.crop,
            threads=settings.threads,
            device=device,
        )

    @property
    def label(self) -> str:
        return f"{short_name(self.model.name)}-{self.part}"

    @property
    def dtype(self) -> str:
        return "float32"

    def identify(self) -> list[object]:
        assert self.weights_digest is not None
        decisive = [self.model.model_dump(), self.weights_digest, self.views, self.normalise, self.device.type]
        decisive += [self.threads, torch.__version__, *map(version, ("monai", "onnx", "onnxruntime"))]
        return [*decisive, cpu.get_cpu_capability(), *([self.crop] if self.crop else [])]

    def open(self, data: PreparedSet, *, size: Sequence[int]) -> tuple[_RunTrunk, str]:
        """Open the trunk: on a CPU by onnxruntime, or by torch where a network cannot be written as ONNX."""
        network = build_initial_model(
            self.model.name,
            params=self.model.params,
            weights=self.weights,
            weights_digest=self.weights_digest,
            frozen=True,
            task=data.task,
            classes=len(data.classes),
            channels=data.channels,
            height=data.height,
            width=data.width,
        )
        trunk = Trunk(network, self.part).to(self.device).eval().requires_grad_(False)
        if self.device.type == "cpu":
            try:
                examples = torch.rand(3, *size, generator=torch.Generator().manual_seed(0))
                return OnnxGraph(write_graph(trunk, examples), threads=self.threads), ENGINES[0]
            except FealError as error:
                slower = f"The trunk of {self.model.name} is run by torch, which takes longer."
                warnings.warn(f"{error} {slower}", stacklevel=2)
        return trunk, ENGINES[1]


def view_images(images: torch.Tensor, view: int) -> torch.Tensor:
    """Return a view: 0 is unchanged, 1 to 3 are flipped, 4 to 7 are these four of the middle 7/8, enlarged.

    Shapes: images and result [B, channels, H, W], in the same memory format.

    Raises:
        ValueError: there is no such view.

    >>> view_images(torch.arange(4.0).reshape(1, 1, 2, 2), 1)
    tensor([[[[1., 0.],
              [3., 2.]]]])
    """
    if not 0 <= view < MAX_VIEWS:
        raise ValueError(f"views are numbered from 0 to {MAX_VIEWS - 1}, not {view}")
    flipped = [axis for bit, axis in ((1, 3), (2, 2)) if view & bit]
    enlarged = _enlarge(images) if view & 4 else images
    return enlarged.flip(flipped) if flipped else enlarged


def view_mask(mask: torch.Tensor, view: int) -> torch.Tensor:
    """Return a mask [H, W] of classes in the view of its image."""
    whole = mask[None, None]
    enlarged = _enlarge(whole, smooth=False) if view & 4 else whole
    return view_images(enlarged, view & 3)[0, 0]


def _enlarge(images: torch.Tensor, *, smooth: bool = True) -> torch.Tensor:
    height, width = images.shape[2:]
    top, left = round(height * MARGIN), round(width * MARGIN)
    middle = images[:, :, top : height - top, left : width - left]
    if smooth:
        return F.interpolate(middle, size=(height, width), mode="bilinear", align_corners=False)
    return F.interpolate(middle.to(torch.uint8), size=(height, width), mode="nearest-exact").to(images.dtype)


class CachedFeatures:
    """Read a frozen trunk's outputs [samples * views, ...]; the views of a sample are consecutive."""

    def __init__(self, features: StoredArray, *, views: int, device: torch.device) -> None:
        self.features = features
        self._views = views
        self._device = device

    def read(self, rows: Rows) -> torch.Tensor:
        """Read the features of the unchanged images, [b, ...]."""
        return self._read(rows * self._views)

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the features of one random view of each image, and the masks in the same view."""
        views = torch.randint(self._views, (len(rows),), generator=generator)
        if targets.ndim > 1:
            pairs = zip(targets, views.tolist(), strict=True)
            targets = torch.stack([view_mask(mask, view) for mask, view in pairs])
        return self._read(rows * self._views + views.numpy()), to_device(targets, self._device)

    def _read(self, rows: Rows) -> torch.Tensor:
        return to_device(torch.from_numpy(self.features.read(rows)), self._device)


def open_features(
    data: PreparedSet, site: PreparedSite, source: FeatureSource, *, read: _ReadRows
) -> CachedFeatures:
    """Open the features [samples * views, ...] of every row of a site; compute them if they are missing.

    Args:
        data: the prepared set of the site.
        site: the site.
        source: the trunk or encoder that computes them.
        read: returns images [b, channels, height, width] by row, on the device, as networks take them.

    Raises:
        FealError: the weights are not available or not those that the run started with, the images are not those
            that were prepared, or the outputs cannot be written.
    """
    path = locate_features(data, f"{name_features(data, site, source)}.npy")
    if not is_complete(path):
        with lock_file(_lock(path)):
            if not is_complete(path):
                # The name stands for the images as prepared: outputs of damaged ones would outlive their repair.
                check_files(data, site.name, only=IMAGE_FILE)
                _compute(path, data, site, source, read)
                _remove_outdated(path, data)
    stored = StoredArray(path, shape=read_shape(path), kinds=(source.dtype,))
    return CachedFeatures(stored, views=source.views, device=source.device)


def derive_features(data: PreparedSet, raw: CachedFeatures, *, digest: str, derive: Derive, dtype: str) -> Path:
    """Return the file of what `derive` makes of raw features, row by row; computed if it is missing.

    Args:
        data: the prepared set of the site.
        raw: the features to derive from.
        digest: names the function.
        derive: returns one row for each row.
        dtype: the type to store.
    """
    path = raw.features.path.with_name(f"{raw.features.path.stem}.{digest}.npy")
    if not is_complete(path):
        with lock_file(_lock(path)):
            if not is_complete(path):
                count = len(raw.features.array)
                blocks = [np.arange(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
                row = derive(raw.features.read(blocks[0][:1])).shape[1:]
                parts = (derive(raw.features.read(block)) for block in blocks)
                _write(path, data, row, dtype, parts, engine=ENGINES[1])
    return path


def name_features(data: PreparedSet, site: PreparedSite, source: FeatureSource) -> str:
    """Return a file name that differs where the features would differ in any bit."""
    decisive = [_FORMAT, data.digest, site.name, *source.identify()]
    digest = hashlib.blake2b(json.dumps(decisive).encode(), digest_size=8).hexdigest()
    return f"{site.name}-{source.label}-{digest}"


def locate_features(data: PreparedSet, name: str) -> Path:
    """Return where a file of features lies: beside the prepared folder, or in the user's cache."""
    root = data.root
    beside = root.resolve().with_name(f"{root.resolve().name}-trunks")
    own = os.access(beside if beside.exists() else beside.parent, os.W_OK) or is_complete(beside / name)
    return (beside if own else user_cache() / "trunks") / name


def _facts(path: Path) -> Path:
    return path.with_suffix(".json")


def is_complete(path: Path) -> bool:
    """Return whether features are there as they were written: damaged ones are computed again."""
    try:
        found, recorded = path.stat(), _read_facts(_facts(path)).get("sha256")
        return recorded is not None and recorded == _checksum(path, found.st_mtime_ns, found.st_size)
    except OSError:
        return False


def read_shape(path: Path) -> tuple[int, ...]:
    """Read the shape of complete features."""
    return tuple(read_json(_facts(path))["shape"])


def _read_facts(path: Path) -> dict[str, Any]:
    """Read the facts of outputs; empty where they are missing or damaged."""
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


@lru_cache(maxsize=64)
def _checksum(path: Path, changed: int, size: int) -> str:
    """Compute a checksum once per process and file: hundreds of megabytes are too many for every message."""
    del changed, size
    return compute_checksum(path)


@torch.no_grad()
def _compute(path: Path, data: PreparedSet, site: PreparedSite, source: FeatureSource, read: _ReadRows) -> None:
    image = read(np.arange(1))
    height, width = image.shape[2:]
    size = resolve_batch_size("auto", height=height, width=width)
    run, engine = source.open(data, size=image.shape[1:])
    temporary = _partial(path, engine)
    row = tuple(run(image).shape[1:])
    done = _count_batches(temporary, row=row, dtype=source.dtype, size=size * source.views) * size

    def compute() -> Iterator[NDArray[Any]]:
        for start in range(done, len(site), size):
            images = read(np.arange(start, min(start + size, len(site))))
            outputs = [run(view_images(images, view)) for view in range(source.views)]
            yield torch.stack(outputs, dim=1).flatten(0, 1).cpu().numpy()
            for listener in _listeners:
                listener(site.name, min(start + size, len(site)), len(site))

    _write(path, data, row, source.dtype, compute(), engine=engine, keep=done * source.views)


def _write(
    path: Path,
    data: PreparedSet,
    row: tuple[int, ...],
    dtype: str,
    parts: Iterable[NDArray[Any]],
    *,
    engine: str,
    keep: int = 0,
) -> None:
    """Write an array in parts, each synced before the next, with its facts; rows that a kill left are kept."""
    temporary = _partial(path, engine)
    try:
        with ArrayWriter(temporary, row=row, dtype=dtype, keep=keep) as writer:
            for part in parts:
                writer.append(part)
                writer.sync()
        facts = {"shape": [writer.rows, *row], "sha256": compute_checksum(temporary), "engine": engine}
        rename_durably(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_error(path, error) from error
    write_json(_facts(path), {**facts, **_origin(data)})


def _origin(data: PreparedSet) -> dict[str, str]:
    """Return which images the outputs are of: the prepared folder, and its digest."""
    return {"root": str(data.root.resolve()), "data": data.digest}


def _remove_outdated(path: Path, data: PreparedSet) -> None:
    """Remove outputs of the same site, network and part for images that this folder no longer holds.

    Others differ in a setting or a version, and another run may read them. Files in use by another process stay.
    """
    beginning = path.stem.rpartition("-")[0]
    for facts in sorted(path.parent.glob(f"{beginning}-*.json")):
        old = facts.with_suffix(".npy")
        if facts.stem.rpartition("-")[0] != beginning or not _is_outdated(facts, data):
            continue
        # A file that cannot be removed is no reason to end a run.
        with suppress(FealError, OSError), lock_file(_lock(old), wait=False) as free:
            # The facts first: without them the array is ignored, whenever this is interrupted.
            for leftover in (facts, old, *(_partial(old, engine) for engine in ENGINES)) if free else ():
                leftover.unlink(missing_ok=True)


def _is_outdated(facts: Path, data: PreparedSet) -> bool:
    content, now = _read_facts(facts), _origin(data)
    return content.get("root") == now["root"] and content.get("data", now["data"]) != now["data"]


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _partial(path: Path, engine: str) -> Path:
    """Return the file of outputs so far; another engine, whose last bits differ, does not continue it."""
    return path.with_name(f".{path.name}.{engine}.part")


def _count_batches(temporary: Path, *, row: tuple[int, ...], dtype: str, size: int) -> int:
    """Return how many complete batches of `size` rows an interrupted computation left.

    Each batch is synced to disk before the next is written, so only the last may be incomplete after a power cut.
    """
    return max(count_rows(temporary, row=row, dtype=dtype) // size - 1, 0)
