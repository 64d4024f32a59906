"""Uncertainty at each pixel beside the picture: patients' pictures, so only if asked for."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.style import INK, WEB_FONT, print_style, sheet, web_layout
from feal.analysis.runs import Run, shown_arm
from feal.analysis.uncertain_pictures import (
    KINDS,
    Chosen,
    chosen_images,
    labelled_picture,
    map_of,
    newest_with_maps,
    picture_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

EACH = 2
"""Images of a site."""
_GAP = 0.28
_LEFT = 0.9
_HEADING = 0.88
_SCALE = "from the least to the most of its kind"


@FIGURES.register("uncertainty-maps", summary="segmentation: uncertainty of both models over the chosen pictures")
class UncertaintyMaps:
    """Where the global and the local model were unsure of the images chosen last."""

    title: ClassVar[str] = "Where both models are unsure of a picture"
    reading: ClassVar[str] = (
        "Each row is an image that a site asked labels for at the end of the newest such round, its label, and "
        "the uncertainty of each pixel at that time; dark is sure, bright unsure, and the blue line the label's "
        "outline. Values are shares of the largest possible, with the range that the colours span above each "
        "column; where the two aleatoric maps differ, the local model knows something else than the global one."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "segmentation, and maps of images that were asked for (diagnostics=true, in simulation)"
    shows_patients: ClassVar[bool] = True

    @staticmethod
    def data(runs: Sequence[Run], *, pictures: bool = False) -> Rows:
        """Pictures as data URIs, of the first seed of the arm shown; nothing unless `pictures` are asked for.

        Raises:
            FealError: the prepared images are not at hand.
        """
        arm, members = shown_arm(runs)
        run = members[0]
        round_ = newest_with_maps(run) if pictures and run.task == "segmentation" else None
        if round_ is None:
            return []
        chosen = list(chosen_images(run, round_, each=EACH))
        about = {"arm": arm, "seed": run.settings.seed, "round": round_}
        return [
            {**about, **row} for one in chosen for row in _rows(one, _ranges(chosen), classes=len(run.classes))
        ]

    @staticmethod
    def web(rows: Rows) -> Web:
        """A row an image, a column a kind."""
        from plotly.graph_objects import Figure as Web

        figure = Web()
        if not rows:
            return figure
        kinds, images, tall = _kinds(rows), _images(rows), _tall(rows)
        for row in rows:
            x, top = kinds.index(row["kind"]), -images.index((row["site"], row["rank"])) * (tall + _GAP)
            if row["image"] is None:
                figure.add_annotation(x=x + 0.45, y=top - tall / 2, text="no label yet", showarrow=False)
                continue
            figure.add_layout_image(
                source=row["image"], xref="x", yref="y", x=x, y=top, sizex=0.92, sizey=tall, sizing="stretch"
            )
            if row["mean"] is not None:
                note = {"text": f"mean {row['mean']:.2f}", "font_size": 10}
                figure.add_annotation(x=x + 0.46, y=top - tall, yanchor="top", showarrow=False, **note)
        for place, kind in enumerate(kinds):
            text = _heading(rows, kind).replace("\n", "<br>")
            figure.add_annotation(x=place + 0.46, y=0.03, yanchor="bottom", text=text, showarrow=False)
        for place, (site, rank) in enumerate(images):
            y = -place * (tall + _GAP) - tall / 2
            figure.add_annotation(x=-0.06, y=y, xanchor="right", text=f"{site}<br>rank {rank}", showarrow=False)
        height = len(images) * (tall + _GAP) + _HEADING
        figure.add_scatter(x=[None], y=[None], mode="markers", marker={"color": [0.0], "coloraxis": "coloraxis"})
        figure.update_xaxes(range=(-_LEFT, len(kinds)), visible=False, fixedrange=True)
        axis = {"scaleanchor": "x", "constraintoward": "top", "visible": False, "fixedrange": True}
        figure.update_yaxes(range=(_HEADING - height, _HEADING), **axis)
        wide, narrow = (round(scale * height) + 60 for scale in (140, 66))
        figure.update_layout(
            **web_layout(
                height=wide,
                meta={"wide": {"height": wide}, "narrow": {"height": narrow}},
                margin={"l": 4, "r": 4, "t": 56, "b": 4},
                font={"family": WEB_FONT, "size": 10, "color": INK},
                showlegend=False,
                coloraxis=_web_colours(),
            )
        )
        return figure

    @staticmethod
    def printed(rows: Rows) -> Print:
        """The same for print."""
        if not rows:
            return sheet(width=3.5, height=1)
        kinds, images = _kinds(rows), _images(rows)
        with print_style():
            figure = sheet(width=1.25 * len(kinds) + 0.6, height=(1.25 * _tall(rows) + 0.2) * len(images) + 1)
            panels = figure.subplots(len(images), len(kinds), squeeze=False)
            for row in rows:
                axes = panels[images.index((row["site"], row["rank"]))][kinds.index(row["kind"])]
                _print_picture(axes, row, heading=_heading(rows, row["kind"]))
            _print_bar(figure, panels)
        return figure


def _print_picture(axes: Axes, row: dict[str, Any], *, heading: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if row["image"] is not None:
        axes.imshow(_opened(row["image"]).convert("RGB"))
    if row["mean"] is not None:
        axes.set_xlabel(f"mean {row['mean']:.2f}", fontsize=6)
    place = axes.get_subplotspec()
    if place is not None and place.is_first_row():
        axes.set_title(heading)
    if place is not None and place.is_first_col():
        axes.set_ylabel(f"{row['site']}\nrank {row['rank']}")


def _print_bar(figure: Print, panels: Any) -> None:
    from matplotlib.cm import ScalarMappable

    bar = figure.colorbar(
        ScalarMappable(cmap="magma"), ax=panels, location="bottom", shrink=0.4, aspect=40, label=_SCALE
    )
    bar.set_ticks([0, 1], labels=["least", "most"])


Ranges = dict[str, tuple[float, float]]


def _ranges(chosen: Sequence[Chosen]) -> Ranges:
    """The smallest and largest value of each kind; both models' aleatoric uncertainty has the same colours."""
    ranges = {}
    for kind in KINDS:
        alike = [other for other in KINDS if other.partition(",")[0] == kind.partition(",")[0]]
        values = [one.maps[other] for one in chosen for other in alike]
        ranges[kind] = (min(float(map_.min()) for map_ in values), max(float(map_.max()) for map_ in values))
    return ranges


def _rows(one: Chosen, ranges: Ranges, *, classes: int) -> Rows:
    labelled = labelled_picture(one, classes=classes)
    empty = {"low": None, "high": None, "mean": None}
    about = {"site": one.site, "rank": one.rank}
    return [
        {**about, "kind": "picture", **empty, "image": _uri(picture_of(one), "JPEG")},
        {**about, "kind": "label", **empty, "image": None if labelled is None else _uri(labelled, "JPEG")},
        *(
            {
                **about,
                "kind": kind,
                "low": low,
                "high": high,
                "mean": float(one.maps[kind].mean()),
                "image": _uri(map_of(one, kind, low=low, high=high), "PNG"),
            }
            for kind, (low, high) in ranges.items()
        ),
    ]


def _uri(picture: Image.Image, form: str) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=form, quality=85)
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _opened(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def _kinds(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["kind"] for row in rows))


def _images(rows: Rows) -> list[tuple[str, int]]:
    return list(dict.fromkeys((row["site"], row["rank"]) for row in rows))


def _tall(rows: Rows) -> float:
    """Height of a picture that is as wide as all are drawn."""
    width, height = next((_opened(row["image"]).size for row in rows if row["image"] is not None), (1, 1))
    return 0.92 * height / width


def _heading(rows: Rows, kind: str) -> str:
    row = next(row for row in rows if row["kind"] == kind)
    lines = kind.split(", ")
    return "\n".join(lines if row["low"] is None else [*lines, f"from {row['low']:.2f}", f"to {row['high']:.2f}"])


def _web_colours() -> dict[str, Any]:
    place = {"orientation": "h", "x": 0.5, "y": 1, "yanchor": "bottom", "thickness": 10, "len": 0.5}
    bar = {**place, "title": {"text": _SCALE, "side": "top"}, "tickvals": [0, 1], "ticktext": ["least", "most"]}
    return {"colorscale": "Magma", "cmin": 0, "cmax": 1, "colorbar": bar}
