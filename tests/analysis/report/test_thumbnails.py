import base64
import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from feal.analysis.report.build import build_report, render_body
from feal.analysis.report.thumbnails import MAX_PER_SITE, make_gallery
from feal.analysis.runs import Run, open_run
from feal.data import open_labels
from feal.errors import FealError
from feal.experiment import start
from feal.fileio import read_tensors
from feal.settings import Component
from tests.people import data_of
from tests.runs import tiny_polyps


@pytest.fixture
def run(finished: Path) -> Run:
    return open_run(finished)


@pytest.mark.usefixtures("curves_only")
def test_pictures_are_there_only_if_asked_for(run: Run) -> None:
    without, with_ = (render_body(build_report([run], pictures=asked)) for asked in (False, True))
    assert "data:image/jpeg" not in without
    assert "--pictures" in without
    assert with_.count("data:image/jpeg") == 2 * 2 * 5
    assert "protect this file" in with_
    assert "<dt>aleatoric global</dt>" in with_


def test_each_picture_has_its_score_prediction_and_label(run: Run) -> None:
    groups = make_gallery([run]).groups
    assert list(groups) == [("feal", 1), ("feal", 2)]
    assert {picture.prediction for picture in groups["feal", 1]["birch"]} == {"no model yet"}
    site = data_of(run.settings).site("birch")
    with (run.path / "sites" / "birch" / "selections" / "round-002.csv").open() as file:
        rows = list(csv.DictReader(file))
    kept = read_tensors(run.path / "sites" / "birch" / "diagnostics" / "round-001.safetensors")
    for picture, row in zip(groups["feal", 2]["birch"], rows, strict=True):
        (place,) = site.rows([row["sample"]])
        said = kept["logits_global"][kept["rows"].tolist().index(place)].argmax()
        assert picture.prediction == site.classes[said]
        assert picture.label == site.classes[open_labels(site).of([row["sample"]])[0]]
        assert picture.sample.score == float(row["score"])
        assert list(picture.sample.parts) == ["aleatoric_global", "aleatoric_local", "epistemic_global"]
        small = Image.open(io.BytesIO(base64.b64decode(picture.picture.partition(",")[2])))
        assert small.size == (96, 96)


@pytest.mark.slow
def test_masks_are_outlined(tmp_path: Path) -> None:
    folder = start(tiny_polyps(rounds=1, communication_rounds=1), out=tmp_path / "run").folder
    (sites,) = make_gallery([open_run(folder)]).groups.values()
    assert {picture.label for pictures in sites.values() for picture in pictures} == {"outlined"}


def test_no_more_than_the_first_ranks_of_some_arms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.analysis.report.thumbnails.MAX_THUMBNAILS", 12)
    monkeypatch.setattr("feal.analysis.report.thumbnails.MAX_ARMS", 1)
    other = replace(run, settings=run.settings.model_copy(update={"strategy": Component(name="random")}))
    found = make_gallery([run, other], first=["random"])
    assert {arm for arm, _ in found.groups} == {"random"}
    assert {len(pictures) for sites in found.groups.values() for pictures in sites.values()} == {3}
    assert found.about.startswith("The first 3 by rank")
    assert MAX_PER_SITE > 3


def test_pictures_that_the_run_did_not_see_are_refused(run: Run) -> None:
    synthetic = run.settings.dataset.model_copy(update={"seed": 5, "train": 8, "test": 2})
    with pytest.raises(FealError, match="not the prepared set that .* or omit --pictures"):
        make_gallery([replace(run, settings=run.settings.model_copy(update={"dataset": synthetic}))])
