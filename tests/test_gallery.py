"""The gallery says of every figure what the figure says of itself, and has a small picture of it."""

import re

import pytest
from benchmarks.gallery import entry
from PIL import Image

from feal.analysis.figures import FIGURES
from tests.paths import PROJECT

PAGE = (PROJECT / "docs" / "gallery.md").read_text()


@pytest.mark.parametrize("name", FIGURES.names())
def test_a_figure_stands_in_the_gallery_as_it_reads(name: str) -> None:
    assert entry(name) in PAGE, "make the page anew with benchmarks/gallery.py"


def test_pictures_are_there_and_small() -> None:
    pictures = re.findall(r"\]\((gallery/[\w-]+\.png)\)", PAGE)
    assert len(pictures) > 5
    for picture in pictures:
        path = PROJECT / "docs" / picture
        assert path.stat().st_size < 150_000, picture
        with Image.open(path) as opened:
            assert opened.width > 300


def test_no_picture_is_left_over() -> None:
    there = {path.name for path in (PROJECT / "docs" / "gallery").iterdir()}
    assert there == set(re.findall(r"gallery/([\w-]+\.png)", PAGE))
