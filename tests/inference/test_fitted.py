"""From pictures of one's own to predictions: they are fitted to the network's size as they were in preparing."""

import csv
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from feal.data import open_prepared
from feal.data.fitting import Fitting
from feal.data.preparation.own import own_pictures
from feal.data.preparation.preparing import prepare
from feal.experiment import start
from feal.inference import export, open_trained, predict_folder
from feal.inference.card import model_card
from tests.runs import tiny
from tests.trained import facts


def _pictures(root: Path) -> Path:
    """Two sites of oblong pictures in two classes."""
    for number in range(40):
        draw = np.random.default_rng(number)
        coarse = Image.fromarray(draw.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        path = root / ("alder", "birch")[number % 2] / ("dark", "light")[number // 2 % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((60, 20 + number), Image.Resampling.BILINEAR).save(path)
    return root


def test_a_picture_gets_the_numbers_that_its_prepared_image_has(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "pictures")
    own = own_pictures(pictures, task="classification", name="mine")
    data = open_prepared(prepare(own, pictures, tmp_path / "data", size=32, processes=1).root)
    changes = {"rounds": 1, "communication_rounds": 1, "budget": 2, "selection": {"batch_size": 64}}
    run = start(tiny(dataset=str(data.root), **changes), out=tmp_path / "run")
    kept = json.loads((run.folder / "state.json").read_text())["facts"]["fitting"]
    assert kept["shape"] == "letterbox"
    export(open_trained(run.folder), tmp_path / "export", format="none")
    model = open_trained(tmp_path / "export")
    assert model.facts.input.fitting == Fitting(shape="letterbox")
    assert "the long side resized to fit, centred on black" in (tmp_path / "export" / "README.md").read_text()

    predict_folder(model, pictures / "alder", tmp_path / "out")
    with (tmp_path / "out" / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    site = data.site("alder")
    named = {Path(source).name: sample for source, sample in zip(site.sources(), site.ids(), strict=True)}
    said = model.predict(site.images([named[Path(row["image"]).name] for row in rows]))
    assert len(rows) == 20
    assert [[float(row["p_dark"]), float(row["p_light"])] for row in rows] == said.probability.tolist()
    assert not torch.equal(said.probability[0], said.probability[1])


def test_a_card_tells_how_to_fit_pictures() -> None:
    for fitting, words in (
        (None, "(stretched, bicubic)"),
        ({"clip": 0.99}, "(clipped at 99 % of its pixels and stretched over 16 bits; stretched (bilinear))"),
        ({"shape": "canvas", "canvas": 400}, "the side being 400 pixels of a picture"),
        ({"shape": "centre", "colour": "constant"}, "the middle cut out; colours as under white light"),
    ):
        size = {**facts().input.model_dump(), "fitting": fitting}
        assert words in model_card(facts(input=size), name="m", formats=[])
