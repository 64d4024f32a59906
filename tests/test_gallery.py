"""The gallery describes every plot as the plot does, and has a small picture of it."""

import re

import numpy as np
import pytest
from benchmarks.gallery import entry
from PIL import Image

from feal.analysis.plots import PLOTS
from feal.analysis.plots.theme import arm_colour
from tests.paths import PROJECT

PAGE = (PROJECT / "docs" / "gallery.md").read_text()


@pytest.mark.parametrize("name", PLOTS.names())
def test_a_plot_is_in_the_gallery_as_it_reads(name: str) -> None:
    assert entry(name) in PAGE, "make the page again with benchmarks/gallery.py"


def test_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"\]\((gallery/[\w-]+\.png)\)", PAGE)
    assert len(pictures) > 5
    for picture in pictures:
        path = PROJECT / "docs" / picture
        assert path.stat().st_size < 150_000, picture
        with Image.open(path) as opened:
            assert opened.width > 300


@pytest.mark.parametrize("name", ["report", "curves"])
def test_a_strategy_has_its_own_colour_in_pictures_too(name: str) -> None:
    colour = [int(arm_colour("feal")[start : start + 2], 16) for start in (1, 3, 5)]
    with Image.open(PROJECT / "docs" / "gallery" / f"{name}.png") as opened:
        distance = np.abs(np.asarray(opened.convert("RGB")).astype(int) - colour).max(axis=2)
    assert distance.min() < 12


def test_no_picture_is_left_over() -> None:
    there = {path.name for path in (PROJECT / "docs" / "gallery").iterdir()}
    assert there == set(re.findall(r"gallery/([\w-]+\.png)", PAGE))
