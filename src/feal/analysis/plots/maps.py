"""Uncertainty at each pixel beside the image: patients' images, so only if asked for."""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageOps
from scipy import ndimage

from feal.analysis.arms import pick_arm
from feal.analysis.outputs import open_run_data, read_labels, read_pool
from feal.analysis.plots.base import PLOTS, Plot, PlotRows
from feal.analysis.plots.theme import MATPLOTLIB_STYLE
from feal.analysis.runs import Run
from feal.data.images import class_colours, to_pil
from feal.errors import FealError
from feal.inference.writers import Map, render_map, scale_aleatoric, scale_epistemic
from feal.rundir.artifacts import read_selection
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import LabelRecord

MAP_KINDS = {
    "aleatoric, global": ("map_aleatoric_global", scale_aleatoric),
    "aleatoric, local": ("map_aleatoric_local", scale_aleatoric),
    "epistemic, global": ("map_epistemic_global", scale_epistemic),
}
"""Maps by name: the tensor that holds them, and the function that makes them shares of the largest possible."""
IMAGES_PER_SITE = 2
DRAWN_SIZE = (144, 144)
"""Pixels into which an image is fitted."""
_OUTLINE = (51, 204, 255)

Mask = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class SelectedImage:
    """A selected image and its mask, if labelled, in the drawn size, and maps [H, W] with values from 0 to 1."""

    site: str
    rank: int
    picture: Image.Image
    mask: Mask | None
    maps: Mapping[str, Map]


def _read_maps(runs: Sequence[Run]) -> PlotRows:
    """Return image, label and maps of the images selected last at each site, of the first seed of one arm.

    Raises:
        FealError: the prepared images are missing, or are not those of the run.
    """
    arm = pick_arm(runs)
    run = arm.runs[0]
    round_ = _newest_round(run) if run.task == "segmentation" else None
    if round_ is None:
        return []
    images = list(_read_selected(run, round_))
    about = {"arm": arm.name, "seed": run.settings.seed, "round": round_}
    ranges = {kind: _find_range(images, kind) for kind in MAP_KINDS}
    return [{**about, **row} for one in images for row in _rows(one, ranges, classes=len(run.classes))]


@mpl.rc_context(MATPLOTLIB_STYLE)
def _draw_maps(rows: PlotRows) -> Figure:
    """Draw a row for each image and a column for each kind."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    images = list(dict.fromkeys((row["site"], row["rank"]) for row in rows))
    width, height = next((_decode(row["image"]).size for row in rows if row["image"] is not None), (1, 1))
    size = (1.25 * len(kinds) + 0.6, (1.15 * height / width + 0.2) * len(images) + 1)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(images), len(kinds), squeeze=False)
    for row in rows:
        _draw_image(panels[images.index((row["site"], row["rank"]))][kinds.index(row["kind"])], row)
    colours, label = ScalarMappable(cmap="magma"), "from the least to the most of its kind"
    bar = figure.colorbar(colours, ax=panels, location="bottom", shrink=0.4, aspect=40, label=label)
    bar.set_ticks([0, 1], labels=["least", "most"])
    return figure


def draw_map(values: Map, mask: Mask | None, *, low: float, high: float) -> Image.Image:
    """Return a map from dark (`low`) to light (`high`) in 255 shades, with the mask's outline as the last one."""
    share = Image.fromarray(((values - low) / max(high - low, 1e-12) * (254 / 255)).astype(np.float32))
    picture = render_map(np.asarray(ImageOps.contain(share, DRAWN_SIZE, Image.Resampling.BILINEAR)))
    picture.putpalette([*(picture.getpalette() or [])[:-3], *_OUTLINE])
    if mask is not None:
        picture.paste(255, mask=_outline(mask > 0))
    return picture


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


def _read_selected(run: Run, round_: int) -> Iterator[SelectedImage]:
    """Yield the first images by rank that every site selected at the end of a round."""
    settings = run.settings
    data = open_run_data(run.path, settings)
    for name, kept in read_pool(run, round_).items():
        site = RunDirectory(run.path).site(name)
        ids = [selected.sample for selected in read_selection(site, round_ + 1)[:IMAGES_PER_SITE]]
        if not ids:
            continue
        labels = read_labels(site, ids)
        prepared = data.site(name, validation=settings.validation, redraw=settings.redraw)
        images = prepared.images(ids).numpy()
        maps = {kind: kept[key].double().numpy() for kind, (key, _) in MAP_KINDS.items() if key in kept}
        if any(len(values) < len(ids) or values.shape[1:] != images.shape[2:] for values in maps.values()):
            raise FealError(
                f"The maps stored by site {name} are of other images than those in {prepared.folder}: "
                "restore the run's own data."
            )
        for place, sample in enumerate(ids):
            yield SelectedImage(
                site=name,
                rank=place + 1,
                picture=ImageOps.contain(to_pil(images[place]).convert("RGB"), DRAWN_SIZE),
                mask=_fit_mask(labels.get(sample)),
                maps={kind: MAP_KINDS[kind][1](maps[kind][place], classes=len(run.classes)) for kind in maps},
            )


def _fit_mask(record: LabelRecord | None) -> Mask | None:
    """Return the mask of a sample in the drawn size, if it has one."""
    if record is None or not isinstance(record.label, np.ndarray):
        return None
    return np.asarray(ImageOps.contain(Image.fromarray(record.label), DRAWN_SIZE, Image.Resampling.NEAREST))


def _find_range(images: Sequence[SelectedImage], kind: str) -> tuple[float, float]:
    """Return the smallest and largest value of a kind; both models' aleatoric maps share their colours."""
    alike = [other for other in MAP_KINDS if other.partition(",")[0] == kind.partition(",")[0]]
    values = np.stack([one.maps[other] for one in images for other in alike])
    return float(values.min()), float(values.max())


def _rows(one: SelectedImage, ranges: Mapping[str, tuple[float, float]], *, classes: int) -> PlotRows:
    about = {"site": one.site, "rank": one.rank, **dict.fromkeys(("kind", "low", "high", "mean"))}
    rows = [
        {**about, "kind": "image", "image": encode_picture(one.picture, "JPEG")},
        {**about, "kind": "label", "image": _draw_label(one, classes=classes)},
    ]
    for kind, (low, high) in ranges.items():
        values = one.maps[kind]
        drawn = encode_picture(draw_map(values, one.mask, low=low, high=high), "PNG")
        rows.append(
            {**about, "kind": kind, "low": low, "high": high, "mean": float(values.mean()), "image": drawn}
        )
    return rows


def _draw_label(one: SelectedImage, *, classes: int) -> str | None:
    """Return the image with the outlines of its mask, one colour a class; None if it is not labelled."""
    if one.mask is None:
        return None
    picture = one.picture.copy()
    for number, colour in enumerate(class_colours(classes)[1:], start=1):
        picture.paste(tuple(colour), mask=_outline(one.mask == number))
    return encode_picture(picture, "JPEG")


def _outline(region: NDArray[np.bool_]) -> Image.Image:
    """Return the pixels just inside the border of a region."""
    return Image.fromarray(region & ~ndimage.binary_erosion(region, border_value=1))


def encode_picture(picture: Image.Image, format: str, *, quality: int = 85) -> str:
    """Return a picture as a data URI."""
    buffer = io.BytesIO()
    picture.save(buffer, format=format, quality=quality)
    return f"data:image/{format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _decode(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


PLOTS.register("uncertainty-maps", summary="segmentation: uncertainty of both models over the selected images")(
    Plot(
        title="Where both models are uncertain",
        reading="Each row is an image that a site selected at the end of the newest such round, its label, and "
        "the uncertainty of each pixel at that time; dark is certain, bright uncertain, and the blue line is the "
        "label's outline. Values are shares of the largest possible, with the range of the colours above each "
        "column; where the two aleatoric maps differ, the local model has learned something else than the global "
        "one.",
        section="uncertainty",
        needs="segmentation, and the sites' maps of selected images (diagnostics=true)",
        data=_read_maps,
        draw=_draw_maps,
        shows_patients=True,
    )
)
