"""Cache a frozen trunk's outputs on disk, for a few fixed views of every image of a site."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
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
TYPE = "float32"
_ENGINES = "onnxruntime", "torch"
_FORMAT = 1

_ReadRows = Callable[[Rows], torch.Tensor]
_RunTrunk = Callable[[torch.Tensor], torch.Tensor]


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


def open_features(data: PreparedSet, site: PreparedSite, spec: TrunkSpec, *, read: _ReadRows) -> CachedFeatures:
    """Open the trunk's outputs [samples * views, ...] for every row of a site; compute them if they are missing.

    Args:
        data: the prepared set of the site.
        site: the site.
        spec: the trunk.
        read: returns images [b, channels, height, width] by row, on the device, as networks take them.

    Raises:
        FealError: the weights are not available or not those that the run started with, the images are not those
            that were prepared, or the outputs cannot be written.
    """
    path = _locate(data.root, f"{_name(data, site, spec)}.npy")
    if not _is_complete(path):
        with lock_file(_lock(path)):
            if not _is_complete(path):
                # The name stands for the images as prepared: outputs of damaged ones would outlive their repair.
                check_files(data, site.name, only=IMAGE_FILE)
                _compute(path, data, site, spec, read)
                _remove_outdated(path, data)
    stored = StoredArray(path, shape=tuple(read_json(_facts(path))["shape"]), kinds=(TYPE,))
    return CachedFeatures(stored, views=spec.views, device=spec.device)


def _name(data: PreparedSet, site: PreparedSite, spec: TrunkSpec) -> str:
    """Return a name that differs where the outputs would differ in any bit."""
    assert spec.weights_digest is not None
    decisive = [_FORMAT, data.digest, site.name, spec.model.model_dump(), spec.weights_digest, spec.views]
    decisive += [spec.normalise, spec.device.type, spec.threads, torch.__version__]
    decisive += [*map(version, ("monai", "onnx", "onnxruntime")), cpu.get_cpu_capability()]
    decisive += [spec.crop] if spec.crop else []
    digest = hashlib.blake2b(json.dumps(decisive).encode(), digest_size=8).hexdigest()
    return f"{site.name}-{short_name(spec.model.name)}-{spec.part}-{digest}"


def _locate(root: Path, name: str) -> Path:
    beside = root.resolve().with_name(f"{root.resolve().name}-trunks")
    own = os.access(beside if beside.exists() else beside.parent, os.W_OK) or _is_complete(beside / name)
    return (beside if own else user_cache() / "trunks") / name


def _facts(path: Path) -> Path:
    return path.with_suffix(".json")


def _is_complete(path: Path) -> bool:
    """Return whether the outputs are there as they were written: damaged ones are computed again."""
    try:
        found, recorded = path.stat(), _read_facts(_facts(path)).get("sha256")
        return recorded is not None and recorded == _checksum(path, found.st_mtime_ns, found.st_size)
    except OSError:
        return False


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


def _open_trunk(data: PreparedSet, spec: TrunkSpec, *, size: Sequence[int]) -> tuple[_RunTrunk, str]:
    """Return a function that runs the trunk on images [b, *size], and the name of the library that does it.

    On a CPU that is onnxruntime, or torch where a user's network cannot be written as ONNX.
    """
    network = build_initial_model(
        spec.model.name,
        params=spec.model.params,
        weights=spec.weights,
        weights_digest=spec.weights_digest,
        frozen=True,
        task=data.task,
        classes=len(data.classes),
        channels=data.channels,
        height=data.height,
        width=data.width,
    )
    trunk = Trunk(network, spec.part).to(spec.device).eval().requires_grad_(False)
    if spec.device.type == "cpu":
        try:
            examples = torch.rand(3, *size, generator=torch.Generator().manual_seed(0))
            return OnnxGraph(write_graph(trunk, examples), threads=spec.threads), _ENGINES[0]
        except FealError as error:
            slower = f"The trunk of {spec.model.name} is run by torch, which takes longer."
            warnings.warn(f"{error} {slower}", stacklevel=2)
    return trunk, _ENGINES[1]


@torch.no_grad()
def _compute(path: Path, data: PreparedSet, site: PreparedSite, spec: TrunkSpec, read: _ReadRows) -> None:
    image = read(np.arange(1))
    height, width = image.shape[2:]
    size = resolve_batch_size("auto", height=height, width=width)
    trunk, engine = _open_trunk(data, spec, size=image.shape[1:])
    temporary = _partial(path, engine)
    row = tuple(trunk(image).shape[1:])
    try:
        done = _count_batches(temporary, row=row, size=size * spec.views) * size
        with ArrayWriter(temporary, row=row, dtype=TYPE, keep=done * spec.views) as writer:
            for start in range(done, len(site), size):
                images = read(np.arange(start, min(start + size, len(site))))
                outputs = [trunk(view_images(images, view)) for view in range(spec.views)]
                writer.append(torch.stack(outputs, dim=1).flatten(0, 1).cpu().numpy())
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
            for leftover in (facts, old, *(_partial(old, engine) for engine in _ENGINES)) if free else ():
                leftover.unlink(missing_ok=True)


def _is_outdated(facts: Path, data: PreparedSet) -> bool:
    content, now = _read_facts(facts), _origin(data)
    return content.get("root") == now["root"] and content.get("data", now["data"]) != now["data"]


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _partial(path: Path, engine: str) -> Path:
    """Return the file of outputs so far; another engine, whose last bits differ, does not continue it."""
    return path.with_name(f".{path.name}.{engine}.part")


def _count_batches(temporary: Path, *, row: tuple[int, ...], size: int) -> int:
    """Return how many complete batches of `size` rows an interrupted computation left.

    Each batch is synced to disk before the next is written, so only the last may be incomplete after a power cut.
    """
    return max(count_rows(temporary, row=row, dtype=TYPE) // size - 1, 0)
