"""Small downloads in the true layout of each data set, with pictures that all differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel
import numpy as np
from PIL import Image

ISIC_CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC", "UNK")
ISIC_COLUMNS = ("image", *ISIC_CLASSES, "target", "center", "fold", "fold2")
HAM_SOURCES = {1: "vidir_molemax", 2: "vidir_modern", 3: "rosendahl", 5: "vienna_dias"}
PROSTATE_SITES = ("BIDMC", "BMC", "HK", "I2CVB", "RUNMC", "UCL")


def photograph(seed: int, height: int, width: int, channels: int = 3) -> np.ndarray:
    """A smooth picture of its own for every seed, [H, W, 3] or [H, W] of 8 bits."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, channels), dtype=np.uint8)
    picture = Image.fromarray(coarse if channels == 3 else coarse[..., 0])
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))


def disc(height: int, width: int, radius: float = 0.3) -> np.ndarray:
    """True within a circle in the middle, [H, W]."""
    rows, columns = np.ogrid[:height, :width]
    away = np.hypot(rows - (height - 1) / 2, columns - (width - 1) / 2)
    return away <= radius * min(height, width)


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.ascontiguousarray(pixels)).save(path)
    return path


def write_table(
    path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]], separator: str = ","
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in [columns, *rows]))
    return path


def isic_split_row(image: str, target: int, centre: int, fold: str) -> list[object]:
    marks = [float(number == target) for number in range(len(ISIC_CLASSES))]
    return [image, *marks, target, centre, fold, f"{fold}_{centre}"]


def isic_flamby(root: Path, *, images: int = 5, centres: Sequence[int] = (1, 2, 3, 5)) -> Path:
    """FLamby's preprocessed folder with its split; the last image of each centre is in the test part."""
    rows, ham = [], []
    for centre in centres:
        for number in range(images):
            name = f"ISIC_{centre:02d}{number:05d}" + ("_downsampled" if centre == 4 else "")
            seed = 100 * centre + number
            save(root / "ISIC_2019_Training_Input_preprocessed" / f"{name}.jpg", photograph(seed, 224, 240))
            fold = "test" if number == images - 1 else "train"
            rows.append(isic_split_row(name, (centre + number) % 8, centre, fold))
            if centre in HAM_SOURCES:
                ham.append([f"HAM_{seed:07d}", name, "nv", "histo", 50.0, "male", "back", HAM_SOURCES[centre]])
    write_table(root / "train_test_split", ISIC_COLUMNS, rows)
    _ham10000(root, ham)
    return root


def isic_raw(root: Path, *, images: int = 5) -> Path:
    """The challenge's own download: six centres, and one image without a lesion."""
    truth, metadata, ham = [], [], []
    for centre in range(6):
        for number in range(images):
            name = f"ISIC_{centre:02d}{number:05d}" + ("_downsampled" if centre == 4 else "")
            lesion = {0: "BCN_", 4: "MSK4_"}.get(centre, "HAM_") + f"{centre}{number // 2:06d}"
            save(root / "ISIC_2019_Training_Input" / f"{name}.jpg", photograph(100 * centre + number, 60, 80))
            truth.append([name, *(float(k == (centre + number) % 8) for k in range(9))])
            metadata.append([name, 50, "back", lesion, "male"])
            if centre in HAM_SOURCES:
                ham.append([lesion, name, "nv", "histo", 50.0, "male", "back", HAM_SOURCES[centre]])
    save(root / "ISIC_2019_Training_Input" / "ISIC_9900000.jpg", photograph(999, 60, 80))
    truth.append(["ISIC_9900000", 1.0, *[0.0] * 8])
    metadata.append(["ISIC_9900000", "", "", "", ""])
    write_table(root / "ISIC_2019_Training_GroundTruth.csv", ("image", *ISIC_CLASSES), truth)
    columns = ("image", "age_approx", "anatom_site_general", "lesion_id", "sex")
    write_table(root / "ISIC_2019_Training_Metadata.csv", columns, metadata)
    _ham10000(root, ham)
    return root


def camelyon(root: Path, *, patients: int = 5, patches: int = 2) -> Path:
    """Five centres of a few patients with a few patches each; every other patch shows tumour."""
    rows: list[list[object]] = []
    for centre in range(5):
        for patient in range(patients):
            number, node = f"{20 * centre + patient:03d}", patient % 5
            for patch in range(patches):
                x, y = 3328 + 32 * patch, 21792
                folder = root / "patches" / f"patient_{number}_node_{node}"
                name = f"patch_patient_{number}_node_{node}_x_{x}_y_{y}.png"
                save(folder / name, photograph(len(rows), 96, 96))
                rows.append([len(rows), number, node, x, y, patch % 2, centre * 10 + patient, centre, patient % 2])
    columns = ("", "patient", "node", "x_coord", "y_coord", "tumor", "slide", "center", "split")
    write_table(root / "metadata.csv", columns, rows)
    return root


def polyps(root: Path, *, frames: int = 5) -> Path:
    """The paper's layout: endings differ between images and masks, and Kvasir's masks are JPEG."""
    sites = {
        "Kvasir": ("jpg", "jpg"),
        "ETIS": ("jpg", "png"),
        "CVC-ColonDB": ("JPG", "png"),
        "CVC-ClinicDB": ("jpg", "PNG"),
    }
    for place, (site, (image, mask)) in enumerate(sites.items()):
        for number in range(1, frames + 1):
            save(root / site / "image" / f"{number}.{image}", photograph(100 * place + number, 36, 48))
            save(root / site / "mask" / f"{number}.{mask}", (disc(36, 48) * 255).astype(np.uint8))
    return root


def polyps_pranet(root: Path) -> Path:
    """PraNet's layout: two centres mixed for training, five folders for testing."""
    names: Mapping[str, Sequence[str]] = {
        "TrainDataset": ("cju1", "cju2", "cju3", "1", "2", "3"),
        "TestDataset/Kvasir": ("cju4",),
        "TestDataset/CVC-ClinicDB": ("4",),
        "TestDataset/CVC-ColonDB": ("1", "2", "3"),
        "TestDataset/ETIS-LaribPolypDB": ("1", "2", "3"),
        "TestDataset/CVC-300": ("149",),
    }
    for place, (folder, stems) in enumerate(names.items()):
        for number, stem in enumerate(stems):
            save(root / folder / "images" / f"{stem}.png", photograph(100 * place + number, 36, 48))
            save(root / folder / "masks" / f"{stem}.png", (disc(36, 48) * 255).astype(np.uint8))
    return root


def save_volume(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), path)
    return path


def prostate(root: Path, *, cases: int = 5, slices: int = 4, side: int = 48) -> Path:
    """Volumes of six sites; the first slice of each shows no prostate, RUNMC numbers two zones."""
    for place, site in enumerate(PROSTATE_SITES):
        for case in range(cases):
            planes = [photograph(1000 * place + 10 * case + z, side, side, 1) for z in range(slices)]
            mask = np.stack([disc(side, side) * (z > 0) for z in range(slices)], axis=2).astype(np.uint8)
            if site == "RUNMC":
                mask[: side // 2] *= 2
            save_volume(root / site / f"Case{case:02d}.nii.gz", np.stack(planes, axis=2).astype(np.int16))
            ending = "_Segmentation" if site == "BMC" else "_segmentation"
            save_volume(root / site / f"Case{case:02d}{ending}.nii.gz", mask)
    return root


def prostate_slices(root: Path) -> Path:
    """MiDSS's slices of six sites: both sides of the split number their cases from 0, and prostates are black."""
    for place, site in enumerate(PROSTATE_SITES):
        for split in ("train", "test"):
            for number, stem in enumerate(("00_00", "00_01", "01_00")):
                seed = 100 * place + 10 * (split == "test") + number
                save(root / site / split / "image" / f"{stem}.png", photograph(seed, 48, 48, 1))
                save(root / site / split / "mask" / f"{stem}.png", (~disc(48, 48) * 255).astype(np.uint8))
    return root


def fundus(root: Path, *, train: int = 3, test: int = 2) -> Path:
    """Four domains with the shipped split; masks are grey in three channels."""
    side = 80
    mask = np.full((side, side), 255, dtype=np.uint8)
    mask[disc(side, side, 0.3)] = 128
    mask[disc(side, side, 0.15)] = 0
    for domain in range(1, 5):
        for number in range(train + test):
            part = root / "Fundus" / f"Domain{domain}" / ("train" if number < train else "test") / "ROIs"
            save(part / "image" / f"g{number:04d}.png", photograph(100 * domain + number, side, side))
            save(part / "mask" / f"g{number:04d}.png", np.repeat(mask[..., None], 3, axis=2))
    return root


def octa(root: Path, *, cases: int = 5, old: bool = False) -> Path:
    """Either release; the older one draws vessels into the same mask."""
    for site, side, first in (("OCTA_3M", 304, 10301), ("OCTA_6M", 400, 10001)):
        mask = (disc(side, side, 0.1) * (100 if old else 255)).astype(np.uint8)
        if old:
            mask[:, :9] = 255
        for number in range(first, first + cases):
            projections = root / site / ("Projection Maps" if old else "ProjectionMaps")
            save(projections / "OCTA(ILM_OPL)" / f"{number}.bmp", photograph(number, side, side, 1))
            save(root / site / ("GroundTruth" if old else "GT_FAZ") / f"{number}.bmp", mask)
    return root


def _ham10000(root: Path, rows: Sequence[Sequence[object]]) -> None:
    columns = ("lesion_id", "image_id", "dx", "dx_type", "age", "sex", "localization", "dataset")
    write_table(root / "HAM10000_metadata", columns, rows)
