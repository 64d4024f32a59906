"""Chosen images of a segmentation run, and how unsure both models were of each pixel when they were chosen."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from feal.analysis.kept import kept_of_pool
from feal.analysis.runs import Run
from feal.data import PreparedSet, PreparedSite, located, open_prepared
from feal.data.pictures import as_picture, palette
from feal.errors import FealError
from feal.federation.store import Store
from feal.files import damaged
from feal.inference.maps import Map, aleatoric_share, epistemic_share, map_picture

KINDS = {
    "aleatoric, global": ("map_aleatoric_global", aleatoric_share),
    "aleatoric, local": ("map_aleatoric_local", aleatoric_share),
    "epistemic, global": ("map_epistemic_global", epistemic_share),
}
"""Maps by what they are called: where they are kept, and how they become shares of the largest possible."""
SIDE = 144
"""Pixels of a picture's longer side."""
_LINE = (51, 204, 255)

Mask = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """An image that was chosen, its mask if somebody has drawn it, and maps [H, W] with values from 0 to 1."""

    site: str
    rank: int
    image: NDArray[np.float32]
    mask: Mask | None
    maps: Mapping[str, Map]


def newest_with_maps(run: Run) -> int | None:
    """The last round at whose end images were chosen and their maps kept; None without any."""
    for record in reversed(run.rounds):
        if any(len(kept.get("map_aleatoric_global", ())) for kept in kept_of_pool(run, record["round"]).values()):
            return int(record["round"])
    return None


def chosen_images(run: Run, round_: int, *, each: int) -> Iterator[Chosen]:
    """The first `each` images by rank that every site chose at the end of a round.

    Raises:
        FealError: the prepared images are not at hand, or are not the run's own.
    """
    settings = run.settings
    data = open_prepared(located(settings))
    for name, kept in kept_of_pool(run, round_).items():
        maps = {kind: kept[key].double().numpy() for kind, (key, _) in KINDS.items() if key in kept}
        folder = run.path / "sites" / name
        ids = _chosen(folder / "selections" / f"round-{round_ + 1:03}.csv")[:each]
        if not ids:
            continue
        masks = _masks(folder / "site.sqlite", set(ids), data)
        images = _images(data.site(name, validation=settings.validation), ids, maps)
        for place, sample in enumerate(ids):
            yield Chosen(
                site=name,
                rank=place + 1,
                image=images[place],
                mask=masks.get(sample),
                maps={kind: KINDS[kind][1](maps[kind][place], classes=len(run.classes)) for kind in maps},
            )


def picture_of(chosen: Chosen) -> Image.Image:
    """The image in colour or grey, at most `SIDE` pixels on a side."""
    picture = as_picture(chosen.image).convert("RGB")
    return picture.resize(_size(chosen), Image.Resampling.BICUBIC)


def labelled_picture(chosen: Chosen, *, classes: int) -> Image.Image | None:
    """The same with the outlines of its mask, in a colour a class; None where nobody has drawn one yet."""
    if chosen.mask is None:
        return None
    pixels = np.array(picture_of(chosen))
    for number, colour in enumerate(palette(classes)[1:], start=1):
        pixels[_outline(chosen, number)] = colour
    return Image.fromarray(pixels)


def map_of(chosen: Chosen, kind: str, *, low: float, high: float) -> Image.Image:
    """A map from dark (`low`) to light (`high`) in 255 shades, with the outlines of the mask as the last one."""
    share = (chosen.maps[kind] - low) / max(high - low, 1e-12) * (254 / 255)
    enlarged = Image.fromarray(share.astype(np.float32)).resize(_size(chosen), Image.Resampling.BILINEAR)
    picture = map_picture(np.asarray(enlarged))
    shades = np.minimum(np.asarray(picture), 254)
    if chosen.mask is not None:
        shades[_outline(chosen, None)] = 255
    colours = picture.getpalette() or []
    drawn = Image.fromarray(shades)
    drawn.putpalette([*colours[:-3], *_LINE])
    return drawn


def _size(chosen: Chosen) -> tuple[int, int]:
    _, height, width = chosen.image.shape
    scale = SIDE / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _outline(chosen: Chosen, number: int | None) -> NDArray[np.bool_]:
    """Pixels just inside a class's border, or every foreground class's."""
    assert chosen.mask is not None
    region = chosen.mask > 0 if number is None else chosen.mask == number
    large = (
        np.asarray(Image.fromarray(region.astype(np.uint8)).resize(_size(chosen), Image.Resampling.NEAREST)) > 0
    )
    edge: NDArray[np.bool_] = large & ~ndimage.binary_erosion(large, border_value=1)
    return edge


def _chosen(table: Path) -> list[str]:
    """Ids in the order of their ranks; none where nothing was asked for."""
    if not table.is_file():
        return []
    try:
        with table.open(newline="") as file:
            return [row["sample"] for row in csv.DictReader(file)]
    except (OSError, csv.Error, ValueError, KeyError) as error:
        raise damaged(table, str(error)) from error


def _masks(store: Path, ids: set[str], data: PreparedSet) -> dict[str, Mask]:
    with closing(Store(store, read_only=True)) as opened:
        if opened.data() != data.digest:
            raise FealError(f"{data.root} is not the prepared set that {store} is about: put that one there.")
        current = [record for record in opened.records() if record.sample in ids and not record.superseded]
    return {record.sample: record.label for record in current if isinstance(record.label, np.ndarray)}


def _images(site: PreparedSite, ids: list[str], maps: Mapping[str, Map]) -> NDArray[np.float32]:
    images: NDArray[np.float32] = site.images(ids).numpy()
    for kept in maps.values():
        if len(kept) < len(ids) or kept.shape[1:] != images.shape[2:]:
            raise FealError(
                f"The maps that site {site.name} kept are of other images than {site.folder} has: "
                "put the run's own data there."
            )
    return images
