"""A prepared site of any size that takes next to no disk: its images are a hole in a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from feal.data.arrays import write_array
from feal.data.manifest import FILE, Manifest, SiteRecord
from feal.data.prepared import IMAGES, TRUTH
from feal.data.samples import FOLDER, write_samples


def site_with_holes(root: Path, *, samples: int, size: int) -> None:
    """A set of one site "site" with black images [3, size, size] and two classes."""
    folder = root / "site"
    folder.mkdir(parents=True)
    _hole(folder / IMAGES, (samples, 3, size, size))
    write_array(folder / TRUTH, (np.arange(samples) % 2).astype(np.int16))
    ids = [f"{number:07}" for number in range(samples)]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "patient": ids,
        "split": ["train"] * samples,
        "given": [False] * samples,
        "source": [""] * samples,
    }
    write_samples(folder / FOLDER, site="site", columns=columns)
    manifest = Manifest(
        name="large",
        task="classification",
        classes=("a", "b"),
        channels=3,
        height=size,
        width=size,
        dtype="uint8",
        sites={"site": SiteRecord(samples=samples, checksums={})},
        source={},
    )
    (root / FILE).write_bytes(manifest.encode())


def _hole(path: Path, shape: tuple[int, ...]) -> None:
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + math.prod(shape))
