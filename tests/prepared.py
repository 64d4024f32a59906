"""Small prepared data sets with known content, and what can be wrong with them afterwards."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from feal.data import PreparedWriter
from feal.data.verify import compute_checksum

Spoil = Callable[[np.ndarray, np.ndarray], None]
"""Changes a written site's images [n, 3, 32, 32] and labels [n]."""


def write_prepared(
    root: Path,
    *,
    samples: int = 30,
    dtype: str = "uint8",
    spoil: Mapping[str, Spoil] | None = None,
) -> Path:
    """Two sites of three classes; a fifth of the samples are the test part."""
    with PreparedWriter(
        root,
        name="blocks",
        task="classification",
        classes=("red", "green", "blue"),
        channels=3,
        height=32,
        width=32,
        dtype=dtype,
    ) as writer:
        for number, name in enumerate(("alder", "birch")):
            draw = np.random.default_rng(number)
            labels = np.arange(samples) % 3
            pixels = draw.random((samples, 3, 32, 32)) * 0.5
            pixels[np.arange(samples), labels] += 0.5
            images = (pixels * 255).astype(np.uint8) if dtype == "uint8" else pixels.astype(dtype)
            writer.site(name).append(
                ids=[f"{name}-{index:04}" for index in range(samples)],
                images=images,
                labels=labels.astype(np.int16),
                splits=["test" if index % 5 == 4 else "train" for index in range(samples)],
            )
    for name, change in (spoil or {}).items():
        images = np.load(root / name / "images.npy", mmap_mode="r+")
        labels = np.load(root / name / "truth.npy", mmap_mode="r+")
        change(images, labels)
        images.flush()
        labels.flush()
        note_checksums(root, name)
    return root


def note_checksums(root: Path, site: str) -> None:
    """Make the set one that was prepared so, by whatever program, rather than one that was altered later."""
    manifest = json.loads((root / "manifest.json").read_text())
    checksums = manifest["sites"][site]["checksums"]
    checksums |= {file: compute_checksum(root / site / file) for file in checksums}
    (root / "manifest.json").write_text(json.dumps(manifest))
