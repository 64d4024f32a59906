"""Make the gallery page: every plot of real runs with how to read it; `python benchmarks/gallery.py RUNS...`.

Only runs of synthetic data: patients' images have no place in documentation. A plot is drawn from the first
directory that has something for it; the report's first screen is of the first directory.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from feal.analysis.plots import PLOTS, PlotRows, read_plot_rows, save_plot
from feal.analysis.report.build import SECTIONS, build_report, render_page
from feal.analysis.runs import Run, read_runs
from feal.data.images import encode_png
from feal.errors import FealError
from feal.fileio import write_bytes, write_text

DOCS = Path(__file__).parent.parent / "docs"
WIDTHS, COLOURS = (1100, 850, 650, 500), 256
LARGEST = 140_000
"""Bytes of a picture, above which it is made narrower."""
INTRODUCTION = """# Gallery

The plots of `feal report`, drawn for print by `feal plot NAME runs -o NAME.pdf`, and how to read them. The runs
are small ones of the synthetic hospitals and show what plots look like, not which strategy is best: for that see
[results.md](results.md). In the report, menus choose metric, site and round, a click on the legend highlights a
strategy (shift-click adds others), and a symbol under the mouse shows its numbers; `-o NAME.csv` writes the
numbers of a plot. The pictures here are made by `python benchmarks/gallery.py RUNS...`.

```
feal report runs -o report.html              # one file for any browser, no network, no patient's image
feal report runs -o report.html --pictures   # with thumbnails of selected images: protect it as you protect them
feal watch runs                              # the same, live, for this machine only
```

![The report: conclusions first, then the evidence](gallery/report.png)
"""


def page() -> str:
    """Return the page's text, from the descriptions of the plots."""
    parts = [INTRODUCTION]
    for section, (_, title) in SECTIONS.items():
        names = [name for name in PLOTS.names() if PLOTS.get(name).section == section]
        parts += [f"## {title}\n"] if names else []
        for name in names:
            parts.append(entry(name))
    return "\n".join(parts)


def entry(name: str) -> str:
    """Return the page's part on a plot."""
    plot = PLOTS.get(name)
    return f"### {plot.title}\n\n`feal plot {name}`: {plot.reading}\n\n![{plot.title}](gallery/{name}.png)\n"


def _drawn(name: str, rows: PlotRows) -> bytes:
    return _small(Image.open(io.BytesIO(save_plot(PLOTS.get(name).draw(rows), "png"))))


def _first_screen(runs: Sequence[Run]) -> bytes:
    """Return a screenshot of the report as it opens."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise FealError("The report's screenshot needs Chromium: install it.")
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "report.html", Path(folder) / "report.png"
        write_text(page, render_page(build_report(runs)))
        subprocess.run(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--user-data-dir={folder}/profile", "--window-size=1280,900"),
                *(f"--screenshot={picture}", page.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=180,
        )
        return _small(Image.open(picture))


def _small(picture: Image.Image) -> bytes:
    picture = picture.convert("RGB")
    sizes = [picture.resize(_size(picture, width), Image.Resampling.LANCZOS) for width in WIDTHS]
    # Maximum coverage keeps rare colours: a strategy's is often a few dots.
    files = [encode_png(smaller.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)) for smaller in sizes]
    return next((file for file in files if len(file) < LARGEST), files[-1])


def _size(picture: Image.Image, width: int) -> tuple[int, int]:
    """Return the size for at most that width."""
    width = min(width, picture.width)
    return width, round(picture.height * width / picture.width)


def _rows(name: str, groups: Sequence[Sequence[Run]]) -> PlotRows:
    for runs in groups:
        rows = read_plot_rows(PLOTS.get(name), runs, pictures=True)
        if rows:
            return rows
    raise FealError(f"None of the directories has runs with anything for {name}: add one.")


def main(places: list[Path]) -> None:
    """Draw all plots and write the page."""
    groups = [read_runs([place]) for place in places]
    for runs in groups:
        if not runs[0].settings.dataset.name.startswith("synthetic-"):
            raise FealError(f"{runs[0].path} is not of synthetic data: its images must not be published.")
    for name in PLOTS.names():
        write_bytes(DOCS / "gallery" / f"{name}.png", _drawn(name, _rows(name, groups)))
    write_bytes(DOCS / "gallery" / "report.png", _first_screen(groups[0]))
    write_text(DOCS / "gallery.md", page())


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
