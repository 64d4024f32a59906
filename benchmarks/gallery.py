"""The gallery page: every figure of real runs with how to read it; `python benchmarks/gallery.py RUNS...`.

Runs of synthetic data only: pictures of patients have no place in documentation. A figure is drawn from the first
folder that has something for it; the report's first screen is of the first folder.
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

from feal.analysis.figures import FIGURES
from feal.analysis.figures.contract import Rows, data_of
from feal.analysis.figures.style import saved
from feal.analysis.report import contents, render
from feal.analysis.report.contents import SECTIONS
from feal.analysis.runs import Run, read_runs
from feal.data.pictures import png_bytes
from feal.errors import FealError
from feal.files import write_bytes, write_text

DOCS = Path(__file__).parent.parent / "docs"
WIDTHS, COLOURS = (1100, 850, 650, 500), 256
LARGEST = 140_000
"""Bytes of a picture, for which it is made less wide."""
INTRODUCTION = """# Gallery

What `feal report` shows, drawn for print by `feal figure NAME runs -o NAME.pdf`, and how to read it. The runs are
of the synthetic hospitals, small, and show what figures look like, not which strategy is best: for that see
[results.md](results.md). The pictures here are made by `python benchmarks/gallery.py RUNS...`.

```
feal report runs -o report.html              # one file, opens anywhere, no network, no picture of a patient
feal report runs -o report.html --pictures   # with thumbnails of what was chosen: keep it as you keep the pictures
feal watch runs                              # the same, live, at an address of this machine only
```

![The report: the answer first, then what it rests on](gallery/report.png)
"""


def page() -> str:
    """The page's text, from what figures say of themselves."""
    parts = [INTRODUCTION]
    for section, (_, title) in SECTIONS.items():
        names = [name for name in FIGURES.names() if FIGURES.get(name).section == section]
        parts += [f"## {title}\n"] if names else []
        for name in names:
            parts.append(entry(name))
    return "\n".join(parts)


def entry(name: str) -> str:
    """What the page says of a figure."""
    figure = FIGURES.get(name)
    return (
        f"### {figure.title}\n\n`feal figure {name}`: {figure.reading}\n\n![{figure.title}](gallery/{name}.png)\n"
    )


def _drawn(name: str, rows: Rows) -> bytes:
    return _small(Image.open(io.BytesIO(saved(FIGURES.get(name).printed(rows), format="png"))))


def _first_screen(runs: Sequence[Run]) -> bytes:
    """What a report shows when it is opened."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise FealError("There is no Chromium on this machine, which draws the report: install it.")
    with tempfile.TemporaryDirectory() as folder:
        page, picture = Path(folder) / "report.html", Path(folder) / "report.png"
        write_text(page, render(contents(runs)))
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
    files = [png_bytes(smaller.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)) for smaller in sizes]
    return next((file for file in files if len(file) < LARGEST), files[-1])


def _size(picture: Image.Image, width: int) -> tuple[int, int]:
    """As wide as that at most."""
    width = min(width, picture.width)
    return width, round(picture.height * width / picture.width)


def _rows(name: str, groups: Sequence[Sequence[Run]]) -> Rows:
    for runs in groups:
        rows = data_of(FIGURES.get(name), runs, pictures=True)
        if rows:
            return rows
    raise FealError(f"None of the folders has runs with anything for {name}: add one.")


def main(places: list[Path]) -> None:
    """Draw all figures and write the page."""
    groups = [read_runs([place]) for place in places]
    for runs in groups:
        if not runs[0].settings.dataset.startswith("synthetic-"):
            raise FealError(f"{runs[0].path} is not of synthetic data: its pictures are not for everybody.")
    for name in FIGURES.names():
        write_bytes(DOCS / "gallery" / f"{name}.png", _drawn(name, _rows(name, groups)))
    write_bytes(DOCS / "gallery" / "report.png", _first_screen(groups[0]))
    write_text(DOCS / "gallery.md", page())


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
