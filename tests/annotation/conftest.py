"""Sites to be asked, and annotators that have been."""

from pathlib import Path

import pytest

from feal.annotation import FolderAnnotator
from feal.data import PreparedSite
from tests.annotation.asking import IDS, queries, write_site


@pytest.fixture
def lesions(tmp_path: Path) -> PreparedSite:
    return write_site(tmp_path / "lesions", task="classification")


@pytest.fixture
def polyps(tmp_path: Path) -> PreparedSite:
    return write_site(tmp_path / "polyps", task="segmentation")


@pytest.fixture
def labelling(lesions: PreparedSite, tmp_path: Path) -> FolderAnnotator:
    """People who label pictures: asked for three in round 1, for one more in round 2."""
    annotator = FolderAnnotator(lesions, folder=tmp_path / "site")
    annotator.ask(queries(IDS[:3]), predict_masks=None)
    annotator.ask(queries(IDS[3:4], round=2), predict_masks=None)
    return annotator


@pytest.fixture
def drawing(polyps: PreparedSite, tmp_path: Path) -> FolderAnnotator:
    """The same, drawing masks."""
    annotator = FolderAnnotator(polyps, folder=tmp_path / "site")
    annotator.ask(queries(IDS[:3]), predict_masks=None)
    annotator.ask(queries(IDS[3:4], round=2), predict_masks=None)
    return annotator


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Round 1's folder."""
    return tmp_path / "site" / "annotation" / "round-001"


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Round 2's folder."""
    return tmp_path / "site" / "annotation" / "round-002"
