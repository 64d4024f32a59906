from pathlib import Path

import yaml

from feal.experiment import Result, start
from feal.inference import load_model
from feal.inference.card import render_model_card
from tests.prepared import write_prepared
from tests.runs import tiny
from tests.trained import make_info


def _front_matter(card: str) -> dict:
    return yaml.safe_load(card.split("---\n")[1])


def test_the_card_has_the_run_s_figures(lesions: Result) -> None:
    card = render_model_card(load_model(lesions.folder).info, name="demo", formats=["torchscript"])
    front = _front_matter(card)
    assert front["pipeline_tag"] == "image-classification"
    assert front["library_name"] == "feal"
    assert front["datasets"] == ["synthetic-lesions"]
    results = front["model-index"][0]["results"]
    figures = lesions.rounds[-1].metrics["balanced_accuracy"]
    assert [result["metrics"][0]["value"] for result in results] == [*figures.sites.values(), figures.mean]
    accuracy = lesions.rounds[-1].metrics["accuracy"]
    for site, labels in lesions.rounds[-1].labels.items():
        line = next(line for line in card.splitlines() if line.startswith(f"| {site} "))
        assert [cell.strip() for cell in line.split("|")[2:6]] == [
            str(labels),
            "16",
            f"{figures.sites[site]:.3f}",
            f"{accuracy.sites[site]:.3f}",
        ]
    for said in ("feal", "melanoma", "Not a medical device", "Licence", "Adam, learning rate 0.003"):
        assert said in card


def test_formats_that_are_not_there_are_not_explained() -> None:
    bare = render_model_card(make_info(), name="m", formats=[])
    assert "onnxruntime" not in bare
    assert "torch.jit" not in bare
    assert "onnxruntime" in render_model_card(make_info(), name="m", formats=["onnx"])


def test_a_round_without_figures_says_so() -> None:
    card = render_model_card(make_info(), name="m", formats=[])
    assert "was not evaluated before the export" in card
    assert "model-index" not in _front_matter(card)


def test_width_and_height_are_told_apart() -> None:
    size = {"channels": 3, "height": 32, "width": 64, "dtype": "uint8", "scale": 255.0}
    card = render_model_card(make_info(input=size), name="m", formats=[])
    assert "64 x 32 pixels (width x height) with 3 channels" in card
    assert "64 x 32 pixels in width x height" in card
    assert "[n, channels, height, width], here [n, 3, 32, 64]" in card


def test_without_the_evidential_loss_the_uncertainties_are_played_down() -> None:
    assert "does not fit evidence" in render_model_card(make_info(loss="balanced"), name="m", formats=[])
    assert "does not fit evidence" not in render_model_card(make_info(), name="m", formats=[])


def test_a_site_without_a_test_part_has_a_dash() -> None:
    origin = make_info().origin.model_dump()
    figures = {"mean": 0.5, "pooled": 0.5, "sites": {"alder": None, "birch": 0.5}}
    origin |= {
        "labels": {"alder": 5, "birch": 6},
        "tested": {"birch": 9},
        "metrics": {"balanced_accuracy": figures},
    }
    card = render_model_card(make_info(origin=origin), name="m", formats=[])
    assert "| alder | 5 | 0 | - |" in card
    assert len(_front_matter(card)["model-index"][0]["results"]) == 2


def test_where_the_data_lay_is_not_told(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "secret-place" / "blocks")
    run = start(tiny(dataset=str(data), rounds=1, communication_rounds=1), out=tmp_path / "run")
    model = load_model(run.folder)
    assert model.info.origin.dataset == "blocks"
    assert "secret-place" not in model.info.model_dump_json()
    assert not {"data", "annotator", "engine"} & set(model.info.origin.settings)
