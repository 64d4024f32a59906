"""Outputs of a frozen trunk over a site's images: computed once, kept on disk, shared by all runs.

They are made in the order of the rows, so many at a time, and named after everything that decides their bits:
whoever makes them, and whenever, makes the same, and goes on where another was stopped. They lie beside the
prepared data, or in the user's cache where that cannot be written, and are as private as the images.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch.backends import cpu

from feal.data import PreparedSet, PreparedSite
from feal.data.arrays import ArrayWriter, StoredArray, rows_written
from feal.data.places import user_cache
from feal.data.prepared import IMAGES, check_files, file_checksum
from feal.data.samples import Rows
from feal.errors import FealError
from feal.federation.views import viewed
from feal.files import if_free, in_turn, publish, read_json, unwritable, write_json
from feal.models import Network, frozen_model
from feal.settings import Settings

BATCH = 64
FORMAT = 1
TYPE = "float32"

ReadImages = Callable[[Rows], torch.Tensor]


def open_outputs(
    data: PreparedSet, site: PreparedSite, settings: Settings, *, read: ReadImages, device: torch.device
) -> StoredArray:
    """The trunk's outputs [samples * views, ...] for every row of a site, computed now if they are not there.

    Args:
        data: the prepared set that the site is of.
        site: whose images.
        settings: of the run: network, weights, part, views.
        read: images [b, channels, height, width] by row, on the device, as networks get them.
        device: where the trunk runs.

    Raises:
        FealError: the weights are out of reach or not those that the run began with, the images are not those
            that were prepared, or the disk refuses.
    """
    path = _place(data.root, f"{_name(data, site, settings, device)}.npy")
    if not _is_whole(path):
        with in_turn(_lock(path)):
            if not _is_whole(path):
                # The name stands for the images as prepared: outputs of damaged ones would outlive their repair.
                check_files(data, site.name, only=IMAGES)
                _compute(path, _trunk(data, settings).to(device), site, settings, read, origin=_origin(data))
                _clear_outdated(path, data)
    return StoredArray(path, shape=tuple(read_json(_facts(path))["shape"]), kinds=(TYPE,))


def _name(data: PreparedSet, site: PreparedSite, settings: Settings, device: torch.device) -> str:
    """A name for outputs that are these bits."""
    assert settings.weights_digest is not None
    training = settings.training
    decisive = [FORMAT, data.digest, site.name, settings.model, settings.weights_digest, training.views]
    decisive += [settings.transforms.normalise, device.type, settings.threads, torch.__version__]
    decisive += [version("monai"), cpu.get_cpu_capability()]
    digest = hashlib.blake2b(json.dumps(decisive).encode(), digest_size=8).hexdigest()
    return f"{site.name}-{settings.model}-{training.trainable}-{digest}"


def _place(root: Path, name: str) -> Path:
    beside = root.resolve().with_name(f"{root.resolve().name}-trunks")
    own = os.access(beside if beside.exists() else beside.parent, os.W_OK) or _is_whole(beside / name)
    return (beside if own else user_cache() / "trunks") / name


def _facts(path: Path) -> Path:
    return path.with_suffix(".json")


def _is_whole(path: Path) -> bool:
    """Whether the outputs are there as they were written: what is damaged is computed anew."""
    try:
        found, facts = path.stat(), json.loads(_facts(path).read_text())
        return bool(_checksum(path, found.st_mtime_ns, found.st_size) == facts["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


@lru_cache(maxsize=64)
def _checksum(path: Path, changed: int, size: int) -> str:
    """Once a process and file: hundreds of megabytes are not to be read for every message."""
    del changed, size
    return file_checksum(path)


def _trunk(data: PreparedSet, settings: Settings) -> Network:
    facts = {"task": data.task, "classes": len(data.classes), "channels": data.channels}
    return frozen_model(settings, **facts, height=data.height, width=data.width).eval()


@torch.no_grad()
def _compute(
    path: Path,
    trunk: Network,
    site: PreparedSite,
    settings: Settings,
    read: ReadImages,
    *,
    origin: Mapping[str, str],
) -> None:
    part, views = settings.training.trainable, range(settings.training.views)
    temporary = _partial(path)
    row = tuple(trunk.trunk(read(np.arange(1)), part=part).shape[1:])
    batches = np.split(np.arange(len(site)), range(BATCH, len(site), BATCH))
    try:
        done = _batches_done(temporary, row=row, size=BATCH * len(views))
        with ArrayWriter(temporary, row=row, dtype=TYPE, keep=done * BATCH * len(views)) as writer:
            for rows in batches[done:]:
                images = read(rows)
                outputs = [trunk.trunk(viewed(images, view), part=part) for view in views]
                writer.append(torch.stack(outputs, dim=1).flatten(0, 1).cpu().numpy())
                writer.sync()
        facts = {"shape": [writer.rows, *row], "sha256": file_checksum(temporary), **origin}
        publish(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error
    write_json(_facts(path), facts)


def _origin(data: PreparedSet) -> dict[str, str]:
    """Which images outputs are of: the prepared folder, and what it held."""
    return {"root": str(data.root.resolve()), "data": data.digest}


def _clear_outdated(path: Path, data: PreparedSet) -> None:
    """Remove outputs for the same site, network and part of images that this folder does not hold any more.

    Others differ in a setting or a version, and another run may read them. What another process holds is left.
    """
    beginning = path.stem.rpartition("-")[0]
    for facts in sorted(path.parent.glob(f"{beginning}-*.json")):
        old = facts.with_suffix(".npy")
        if facts.stem.rpartition("-")[0] != beginning or not _is_outdated(facts, data):
            continue
        # Whoever may not remove them keeps them: that is no reason to end a run.
        with suppress(FealError, OSError), if_free(_lock(old)) as free:
            # The facts first: without them the array counts for nothing, whenever this is interrupted.
            for leftover in (facts, old, _partial(old)) if free else ():
                leftover.unlink(missing_ok=True)


def _is_outdated(facts: Path, data: PreparedSet) -> bool:
    try:
        content = json.loads(facts.read_text())
        now = _origin(data)
        return bool(content["root"] == now["root"] and content["data"] != now["data"])
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _batches_done(temporary: Path, *, row: tuple[int, ...], size: int) -> int:
    """How many batches of `size` rows a computation that was stopped left whole.

    Each is brought to the disk before the next is written, so that only the last may be torn, as by a power cut.
    """
    return max(rows_written(temporary, row=row, dtype=TYPE) // size - 1, 0)
