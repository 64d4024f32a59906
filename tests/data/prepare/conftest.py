"""A small download of this folder's own, whose every file a test may spoil."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from feal.data.prepare import DatasetSource, DecodedSample, Finding, ScanResult, SourceRecord
from feal.data.prepare import decode as decoding
from feal.data.prepare.pipeline import PreparationResult, prepare_dataset
from feal.data.resize import Fitting

LETTERBOX = Fitting(shape="letterbox")


def picture(number: int, *, height: int = 40, width: int = 40) -> np.ndarray:
    """Blobs [H, W, 3] that differ from number to number, also for a hash."""
    draw = np.random.default_rng(number)
    coarse = Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    return np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))


class Blobs(DatasetSource):
    """`SITE/NUMBER.png` with `SITE/masks/NUMBER.png`: 0 background, 200 blob."""

    name = "blobs"
    task = "segmentation"
    classes = ("background", "blob")
    size = 32
    regions: ClassVar = {"blob": (1,)}

    def scan(self, folder: Path) -> ScanResult:
        records, findings = [], []
        for site in sorted(path for path in folder.iterdir() if path.is_dir()):
            masks = {path.stem: path for path in (site / "masks").glob("*.png")}
            for path in sorted(site.glob("*.png")):
                mask = masks.pop(path.stem, None)
                records.append(SourceRecord(site=site.name, id=path.stem, image=path, mask=mask))
            findings += [
                Finding(file=str(path.relative_to(folder)), problem="has no image") for path in masks.values()
            ]
        return ScanResult(records=records, findings=findings, absent=["elm"], remarks=["Drawn by hand."])

    def read(self, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        image = decoding.to_rgb(decoding.decode_image(record.image))
        if record.mask is None:
            raise decoding.UnusableFileError("has no mask")
        mask = decoding.decode_mask(record.mask)
        decoding.check_same_size(image, mask, file=record.mask)
        classes = decoding.map_values(mask, {0: 0, 200: 1}, file=record.mask)
        return [
            DecodedSample(
                id=record.id,
                image=LETTERBOX.fit_image(image, size, size).transpose(2, 0, 1),
                label=LETTERBOX.fit_mask(classes, size, size),
            )
        ]


class Given(Blobs):
    """Blobs with drafts that a test rewrites."""

    def __init__(self, **changes: dict[str, object]) -> None:
        self.changes = changes

    def scan(self, folder: Path) -> ScanResult:
        records = super().scan(folder).records
        return ScanResult(
            records=[
                SourceRecord(**{**vars(record), **self.changes.get(record.site, {}).get(record.id, {})})
                for record in records
            ]
        )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Two sites of ten pictures, no two alike."""
    root = tmp_path / "download"
    for place, site in enumerate(("alder", "birch")):
        (root / site / "masks").mkdir(parents=True)
        for number in range(10):
            pixels = picture(100 * place + number)
            Image.fromarray(pixels).save(root / site / f"{number:02}.png")
            mask = np.where(pixels[..., 0] > 127, 200, 0).astype(np.uint8)
            Image.fromarray(mask).save(root / site / "masks" / f"{number:02}.png")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder for pictures of one's own."""
    path = tmp_path / "pictures"
    path.mkdir()
    return path


def prepared(dataset: Path, **options: object) -> PreparationResult:
    """The download, prepared in this process beside itself."""
    return prepare_dataset(Blobs(), dataset, dataset.parent / "to", threads=1, **options)


def content(root: Path) -> dict[str, bytes]:
    """Every file of a prepared set but the one that holds the times of the download's files."""
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    files.pop("prepared-from.json")
    return files
