"""Prepared data: preparing against pillow alone, reading against decoding, and sites that no memory holds.

Medians of interleaved repeats, in CPU seconds; the speed-up by a second thread is in wall-clock seconds and needs
two free cores. Frames are those of Fed-Polyp where FEAL_TEST_DATA has them. Memory is measured in fresh processes,
on arrays that are files with holes. Nothing is asserted.

    python benchmarks/data.py [--quick] [--only preparing|reading|large]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from cases import Case, write_hollow_site
from feal.data import PreparedSite, open_prepared
from feal.data.prepare.datasets.polyp import FedPolyp
from feal.data.prepare.decode import decode_image, to_rgb
from feal.data.prepare.image_folder import ImageFolder, open_image_folder
from feal.data.prepare.pipeline import prepare_dataset
from feal.federation.site.query import Pool, select_from_pool
from feal.rng import Address
from feal.selection import STRATEGIES
from timing import (
    Measurement,
    cpu_seconds,
    format_megabytes,
    format_seconds,
    measure,
    median_seconds,
    print_table,
    run_in_fresh_process,
)
from training import site_loop

SIZE = 224
BATCH = 32


def draw_pictures(folder: Path, count: int) -> Path:
    """Write photographs of 1024 x 768 pixels at two sites, in two classes."""
    draw = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"site{number % 2}" / f"class{number // 2 % 2}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(draw.integers(0, 256, (96, 128, 3), dtype=np.uint8))
        coarse.resize((1024, 768), Image.Resampling.BICUBIC).save(place / f"{number:05}.jpg", quality=90)
    return folder


def gather_frames(folder: Path, count: int) -> list[tuple[Path, Path]]:
    """Write `count` frames and masks at each site, laid out as Fed-Polyp: of FEAL_TEST_DATA, or drawn."""
    real = Path(os.environ.get("FEAL_TEST_DATA", "/nowhere")) / "fed_polyp"
    draw = np.random.default_rng(0)
    pairs = []
    for names in FedPolyp.site_folders.values():
        for kind in ("image", "mask"):
            (folder / names[0] / kind).mkdir(parents=True)
        masks = {path.stem: path for path in (real / names[0] / "mask").glob("*")}
        found = sorted((real / names[0] / "image").glob("*"))[:count]
        for path in found:
            pairs.append(
                (folder / names[0] / "image" / path.name, folder / names[0] / "mask" / masks[path.stem].name)
            )
            shutil.copy(path, pairs[-1][0])
            shutil.copy(masks[path.stem], pairs[-1][1])
        for number in range(count if not found else 0):
            coarse = Image.fromarray(draw.integers(0, 256, (36, 48, 3), dtype=np.uint8))
            frame = coarse.resize((480, 360), Image.Resampling.BICUBIC)
            pairs.append(
                (folder / names[0] / "image" / f"{number}.jpg", folder / names[0] / "mask" / f"{number}.png")
            )
            frame.save(pairs[-1][0], quality=90)
            frame.convert("L").point(lambda value: 255 if value > 128 else 0).save(pairs[-1][1])
    return pairs


def fit_by_pillow(pair: tuple[Path, Path], size: int) -> list[np.ndarray]:
    """Decode, resize and letterbox a frame and its mask by pillow alone."""
    arrays = []
    for path, mode, how in zip(
        pair, ("RGB", "L"), (Image.Resampling.BILINEAR, Image.Resampling.NEAREST), strict=True
    ):
        with Image.open(path) as file:
            image = file.convert(mode)
        scale = size / max(image.size)
        small = image.resize((round(image.width * scale), round(image.height * scale)), how)
        canvas = Image.new(mode, (size, size))
        canvas.paste(small, ((size - small.width) // 2, (size - small.height) // 2))
        arrays.append(np.asarray(canvas))
    return arrays


def prepare_frames(pairs: Sequence[tuple[Path, Path]], place: Path, threads: int) -> tuple[float, float]:
    """Return CPU and wall-clock seconds of preparing frames, or of pillow alone if there is no thread."""

    def form() -> None:
        if threads:
            prepare_dataset(FedPolyp(), place / "frames", place / uuid.uuid4().hex, threads=threads)
            return
        for pair in pairs:
            fit_by_pillow(pair, FedPolyp.size)

    start = time.perf_counter()
    cpu = cpu_seconds(form)
    return cpu, time.perf_counter() - start


def preparing_rows(count: int, repeats: int) -> Iterator[list[str]]:
    """Yield CPU milliseconds and wall-clock seconds of preparing the same frames, each time in a fresh process."""
    yield ["", "frames", "CPU ms a frame", "ratio to pillow", "wall-clock s", "speed-up"]
    forms = {"pillow alone": 0, "1 thread": 1, "2 threads": 2}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    with tempfile.TemporaryDirectory() as folder:
        pairs = gather_frames(Path(folder) / "frames", count)
        for _ in range(repeats):
            for name, threads in forms.items():
                times[name].append(run_in_fresh_process(prepare_frames, pairs, Path(folder), threads))
    medians = {
        name: [statistics.median(part) for part in zip(*taken, strict=True)] for name, taken in times.items()
    }
    for name, (cpu, wall) in medians.items():
        ratio, speed_up = cpu / medians["pillow alone"][0], medians["1 thread"][1] / wall
        figures = [f"{1e3 * cpu / len(pairs):.2f}", f"{ratio:.2f}", f"{wall:.1f}", f"{speed_up:.2f}"]
        yield [name, str(len(pairs)), *figures]


def reading_rows(count: int, repeats: int) -> Iterator[list[str]]:
    """Yield CPU seconds of training batches in drawn order, from prepared arrays and from the files."""
    yield ["", "images a second", "ratio"]
    with tempfile.TemporaryDirectory() as place:
        source = draw_pictures(Path(place) / "pictures", count)
        own = open_image_folder(source, task="classification", name="own")
        root = prepare_dataset(own, source, Path(place) / "prepared", size=SIZE, threads=1).root
        site = open_prepared(root).site("site0")
        order = np.random.default_rng(0).permutation(len(site))
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        files = [source / name for name in site.sources()]
        forms: dict[str, Callable[[], object]] = {
            "prepared": lambda: [site.read(batch) for batch in batches],
            "files": lambda: [_decode([files[number] for number in batch]) for batch in batches],
        }
        seconds = median_seconds(forms, repeats)
    for name, median in seconds.items():
        yield [name, f"{len(order) / median:,.0f}", f"{seconds['files'] / median:.1f}"]


def _decode(paths: Sequence[Path]) -> torch.Tensor:
    fit = ImageFolder.fitting.fit_image
    images = [fit(to_rgb(decode_image(path)), SIZE, SIZE).transpose(2, 0, 1) for path in paths]
    return torch.from_numpy(np.stack(images)).float() / 255


def large_rows(samples: int, million: int) -> Iterator[list[str]]:
    """Yield time and extra memory of a site's work, beside the bytes of its images."""
    yield ["", "samples", "size", "images", "time", "extra memory"]
    for count, size, steps in ((samples, 96, (opening,)), (million, 32, (opening, training, selecting))):
        with tempfile.TemporaryDirectory() as place:
            case = Case("tiny-cnn", "classification", size, count, 256)
            write_hollow_site(Path(place) / "large", samples=count, size=size)
            for step in steps:
                figures = run_in_fresh_process(_measure_step, step, case, Path(place))
                words = [format_seconds(figures.seconds), format_megabytes(figures.extra)]
                yield [step.__name__, f"{count:,}", str(size), format_megabytes(count * 3 * size**2), *words]


def opening(case: Case, place: Path) -> PreparedSite:
    """Open the site and ask which samples it has to train on."""
    del case
    site = open_prepared(place / "large").site("site")
    site.ids("train")
    return site


def training(case: Case, place: Path) -> None:
    """Train an epoch over 512 labelled samples that lie anywhere in the site."""
    site = open_prepared(place / "large").site("site")
    rows = np.linspace(0, len(site) - 1, 512).astype(np.int64)
    site_loop(case, site, torch.arange(512) % case.classes, rows=rows)


def selecting(case: Case, place: Path) -> None:
    """Look at every sample by a network and choose a hundred."""
    site = opening(case, place)
    pool = Pool(
        ids=site.ids("train").tolist(),
        labelled=[],
        read=lambda ids: site.images(ids).to(memory_format=torch.channels_last),
        networks={"global": case.network().eval()},
        scratch=place,
        device=torch.device("cpu"),
        batch_size=case.batch_size,
    )
    select_from_pool(
        STRATEGIES.get("entropy")(),
        pool,
        case.context("plain"),
        budget=100,
        candidates="all",
        diagnostics=False,
        address=Address(seed=0, purpose="select"),
    )


def _measure_step(step: Callable[[Case, Path], object], case: Case, place: Path) -> Measurement:
    case.network()  # whatever libraries allocate once
    return measure(lambda: step(case, place))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer pictures and repeats")
    parser.add_argument("--only", choices=("preparing", "reading", "large"), help="this part alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    quick, parts = options.quick, [options.only] if options.only else ["preparing", "reading", "large"]
    if "preparing" in parts:
        print(f"Preparing frames with masks at {FedPolyp.size} pixels")
        print_table(preparing_rows(25 if quick else 150, 3 if quick else 7))
    if "reading" in parts:
        print(f"Training batches of {BATCH} at {SIZE} pixels, CPU seconds")
        print_table(reading_rows(128 if quick else 512, 3 if quick else 7))
    if "large" in parts:
        print("Sites larger than memory; extra memory is that beyond a process with the network")
        print_table(large_rows(100_000, 100_000 if quick else 1_000_000))


if __name__ == "__main__":
    main()
