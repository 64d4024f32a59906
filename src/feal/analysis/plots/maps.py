"""Uncertainty at each pixel beside the image: patients' images, so only if asked for."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from feal.analysis.outputs import read_pool
from feal.analysis.plots.base import PLOTS, PlotRows, matplotlib_style
from feal.analysis.runs import Run, pick_arm
from feal.data import PreparedSet, PreparedSite, locate, open_prepared
from feal.data.images import class_colours, to_pil
from feal.errors import FealError
from feal.inference.writers import Map, render_map, scale_aleatoric, scale_epistemic
from feal.rundir.artifacts import read_selection
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "aleatoric, global": ("map_aleatoric_global", scale_aleatoric),
    "aleatoric, local": ("map_aleatoric_local", scale_aleatoric),
    "epistemic, global": ("map_epistemic_global", scale_epistemic),
}
"""Maps by name: the tensor that holds them, and the function that makes them shares of the largest possible."""
IMAGES_PER_SITE = 2
SIDE = 144
"""Pixels of an image's longer side."""
_OUTLINE = (51, 204, 255)

Mask = NDArray[np.uint8]
Ranges = dict[str, tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class SelectedImage:
    """A selected image, its mask if it is labelled, and maps [H, W] with values from 0 to 1."""

    site: str
    rank: int
    image: NDArray[np.float32]
    mask: Mask | None
    maps: Mapping[str, Map]


@PLOTS.register("uncertainty-maps", summary="segmentation: uncertainty of both models over the selected images")
class UncertaintyMaps:
    """Where the global and the local model were uncertain about the images selected last."""

    title: ClassVar[str] = "Where both models are uncertain"
    reading: ClassVar[str] = (
        "Each row is an image that a site selected at the end of the newest such round, its label, and the "
        "uncertainty of each pixel at that time; dark is certain, bright uncertain, and the blue line is the "
        "label's outline. Values are shares of the largest possible, with the range of the colours above each "
        "column; where the two aleatoric maps differ, the local model has learned something else than the "
        "global one."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "segmentation, and the sites' maps of selected images (diagnostics=true)"
    shows_patients: ClassVar[bool] = True

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return images as data URIs, of the first seed of one arm.

        Raises:
            FealError: the prepared images are missing.
        """
        arm, members = pick_arm(runs)
        run = members[0]
        round_ = _newest_round(run) if run.task == "segmentation" else None
        if round_ is None:
            return []
        images = list(read_selected(run, round_, count=IMAGES_PER_SITE))
        about = {"arm": arm, "seed": run.settings.seed, "round": round_}
        ranges = _ranges(images)
        return [{**about, **row} for one in images for row in _rows(one, ranges, classes=len(run.classes))]

    @staticmethod
    @matplotlib_style()
    def draw(rows: PlotRows) -> Figure:
        """Draw a row for each image and a column for each kind."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.figure import Figure

        kinds = list(dict.fromkeys(row["kind"] for row in rows))
        images = list(dict.fromkeys((row["site"], row["rank"]) for row in rows))
        width, height = next((_decode(row["image"]).size for row in rows if row["image"] is not None), (1, 1))
        tall = 1.15 * height / width
        size = (1.25 * len(kinds) + 0.6, (tall + 0.2) * len(images) + 1)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(images), len(kinds), squeeze=False)
        for row in rows:
            axes = panels[images.index((row["site"], row["rank"]))][kinds.index(row["kind"])]
            _draw_image(axes, row)
        bar = figure.colorbar(
            ScalarMappable(cmap="magma"),
            ax=panels,
            location="bottom",
            shrink=0.4,
            aspect=40,
            label="from the least to the most of its kind",
        )
        bar.set_ticks([0, 1], labels=["least", "most"])
        return figure


def read_selected(run: Run, round_: int, *, count: int) -> Iterator[SelectedImage]:
    """Yield the first `count` images by rank that every site selected at the end of a round.

    Raises:
        FealError: the prepared images are missing, or are not those of the run.
    """
    settings = run.settings
    data = open_prepared(locate(settings.dataset, data=settings.data))
    for name, kept in read_pool(run, round_).items():
        maps = {kind: kept[key].double().numpy() for kind, (key, _) in KINDS.items() if key in kept}
        site = RunDirectory(run.path).site(name)
        ids = [selected.sample for selected in read_selection(site, round_ + 1)[:count]]
        if not ids:
            continue
        masks = _read_masks(site.database, set(ids), data)
        images = _read_images(data.site(name, validation=settings.validation), ids, maps)
        for place, sample in enumerate(ids):
            yield SelectedImage(
                site=name,
                rank=place + 1,
                image=images[place],
                mask=masks.get(sample),
                maps={kind: KINDS[kind][1](maps[kind][place], classes=len(run.classes)) for kind in maps},
            )


def draw_map(selected: SelectedImage, kind: str, *, low: float, high: float) -> Image.Image:
    """Return a map from dark (`low`) to light (`high`) in 255 shades, with the mask's outline as the last one."""
    share = (selected.maps[kind] - low) / max(high - low, 1e-12) * (254 / 255)
    enlarged = Image.fromarray(share.astype(np.float32)).resize(_size(selected), Image.Resampling.BILINEAR)
    picture = render_map(np.asarray(enlarged))
    shades = np.minimum(np.asarray(picture), 254)
    if selected.mask is not None:
        shades[_outline(selected, None)] = 255
    colours = picture.getpalette() or []
    drawn = Image.fromarray(shades)
    drawn.putpalette([*colours[:-3], *_OUTLINE])
    return drawn


def _draw_image(axes: Axes, row: Mapping[str, Any]) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if row["image"] is not None:
        # Without interpolation a vector file has the pixels themselves, not an enlargement of them.
        axes.imshow(_decode(row["image"]).convert("RGB"), interpolation="none")
    else:
        axes.text(0.5, 0.5, "not labelled", ha="center", va="center", transform=axes.transAxes)
    if row["mean"] is not None:
        axes.set_xlabel(f"mean {row['mean']:.2f}", fontsize=6)
    place = axes.get_subplotspec()
    if place is not None and place.is_first_row():
        bounds = [] if row["low"] is None else [f"from {row['low']:.2f}", f"to {row['high']:.2f}"]
        axes.set_title("\n".join([*row["kind"].split(", "), *bounds]))
    if place is not None and place.is_first_col():
        axes.set_ylabel(f"{row['site']}\nrank {row['rank']}")


def _newest_round(run: Run) -> int | None:
    """Return the last round at whose end images were selected and their maps stored; None without any."""
    for record in reversed(run.rounds):
        if any(len(kept.get("map_aleatoric_global", ())) for kept in read_pool(run, record.round).values()):
            return int(record.round)
    return None


def _ranges(images: Sequence[SelectedImage]) -> Ranges:
    """Return the smallest and largest value of each kind; both models' aleatoric maps share their colours."""
    ranges = {}
    for kind in KINDS:
        alike = [other for other in KINDS if other.partition(",")[0] == kind.partition(",")[0]]
        values = [one.maps[other] for one in images for other in alike]
        ranges[kind] = (min(float(map_.min()) for map_ in values), max(float(map_.max()) for map_ in values))
    return ranges


def _rows(one: SelectedImage, ranges: Ranges, *, classes: int) -> PlotRows:
    about = {"site": one.site, "rank": one.rank}
    empty = {"low": None, "high": None, "mean": None}
    picture = to_pil(one.image).convert("RGB").resize(_size(one), Image.Resampling.BICUBIC)
    return [
        {**about, "kind": "image", **empty, "image": _encode(picture, "JPEG")},
        {**about, "kind": "label", **empty, "image": _draw_label(one, picture, classes=classes)},
        *(
            {
                **about,
                "kind": kind,
                "low": low,
                "high": high,
                "mean": float(one.maps[kind].mean()),
                "image": _encode(draw_map(one, kind, low=low, high=high), "PNG"),
            }
            for kind, (low, high) in ranges.items()
        ),
    ]


def _draw_label(one: SelectedImage, picture: Image.Image, *, classes: int) -> str | None:
    """Return the image with the outlines of its mask, one colour a class; None if it is not labelled."""
    if one.mask is None:
        return None
    pixels = np.array(picture)
    for number, colour in enumerate(class_colours(classes)[1:], start=1):
        pixels[_outline(one, number)] = colour
    return _encode(Image.fromarray(pixels), "JPEG")


def _size(one: SelectedImage) -> tuple[int, int]:
    _, height, width = one.image.shape
    scale = SIDE / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _outline(one: SelectedImage, number: int | None) -> NDArray[np.bool_]:
    """Return the pixels just inside the border of a class, or of every foreground class."""
    assert one.mask is not None
    region = one.mask > 0 if number is None else one.mask == number
    large = np.asarray(Image.fromarray(region.astype(np.uint8)).resize(_size(one), Image.Resampling.NEAREST)) > 0
    edge: NDArray[np.bool_] = large & ~ndimage.binary_erosion(large, border_value=1)
    return edge


def _encode(picture: Image.Image, format: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=format, quality=85)
    return f"data:image/{format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _decode(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def _read_masks(store: Path, ids: set[str], data: PreparedSet) -> dict[str, Mask]:
    with closing(Store(store, read_only=True)) as opened:
        if opened.data_digest() != data.digest:
            raise FealError(f"{data.root} is not the prepared data set of {store}: restore that one.")
        current = [record for record in opened.records() if record.sample in ids and not record.superseded]
    return {record.sample: record.label for record in current if isinstance(record.label, np.ndarray)}


def _read_images(site: PreparedSite, ids: list[str], maps: Mapping[str, Map]) -> NDArray[np.float32]:
    images: NDArray[np.float32] = site.images(ids).numpy()
    for kept in maps.values():
        if len(kept) < len(ids) or kept.shape[1:] != images.shape[2:]:
            raise FealError(
                f"The maps stored by site {site.name} are of other images than those in {site.folder}: "
                "restore the run's own data."
            )
    return images
