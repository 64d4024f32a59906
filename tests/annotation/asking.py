"""A site with awkward sample ids, and questions about them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from feal.annotation import Query
from feal.data import PreparedSite, PreparedWriter, open_prepared

IDS = ["a/1", "a-1", "A-1", "Ümlaut, 2", "s5"]


def queries(samples: Sequence[str], *, round: int = 1) -> list[Query]:
    return [
        Query(sample=sample, round=round, rank=rank, score=1 / rank, model="m")
        for rank, sample in enumerate(samples, start=1)
    ]


def write_site(root: Path, *, task: str, dtype: str = "uint8", channels: int = 3) -> PreparedSite:
    """A site "alder" of five samples with awkward ids, 6 x 4 pixels, three classes."""
    predict_masks = np.random.default_rng(0)
    pixels = predict_masks.random((5, channels, 4, 6))
    images = (pixels * np.iinfo(dtype).max).astype(dtype) if dtype != "float16" else (pixels * 4 - 2).astype(dtype)
    truth = np.zeros(5, dtype=np.int16) if task == "classification" else np.zeros((5, 4, 6), dtype=np.uint8)
    classes = ("nevus", "melanoma", "vascular")
    with PreparedWriter(
        root, name="x", task=task, classes=classes, channels=channels, height=4, width=6, dtype=dtype
    ) as writer:
        writer.site("alder").append(ids=IDS, images=images, labels=truth, splits=["train"] * 5)
    return open_prepared(root).site("alder")
