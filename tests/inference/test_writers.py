import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from feal.data import open_prepared
from feal.data.prepare.image_folder import open_image_folder
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.experiment import start
from feal.inference import PredictionCallback, TrainedModel, export_model, load_model, predict_images
from feal.inference.card import render_model_card
from feal.inference.writers import render_map, scale_aleatoric, scale_epistemic
from tests.runs import tiny
from tests.trained import CLASSES, made_up, make_info


class RecordingCallback(PredictionCallback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def on_image(self, done: int, total: int) -> None:
        self.steps.append((done, total))

    def on_skip(self, message: str) -> None:
        self.notes.append(message)


def _pictures(folder: Path, *names: str, width: int = 32, height: int = 32) -> Path:
    draw = np.random.default_rng(len(names))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / name)
    return folder


def _rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "predictions.csv").open() as file:
        return list(csv.DictReader(file))


def _stored(folder: Path, names: list[str]) -> torch.Tensor:
    pixels = np.stack([np.asarray(Image.open(folder / name)) for name in names])
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255))


def test_no_more_than_a_batch_is_looked_at_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, hearing = made_up(), RecordingCallback()
    names = [f"{number:02}.png" for number in range(10)]
    pictures = _pictures(tmp_path / "in", *names)
    sizes = []
    predict = model.predict
    monkeypatch.setattr(model, "predict", lambda images: (sizes.append(len(images)), predict(images))[1])
    predicted = predict_images(model, pictures, tmp_path / "out", callback=hearing)
    assert sizes == [4, 4, 2]
    assert hearing.steps == [(done, 10) for done in range(1, 11)]
    said = predict(_stored(pictures, names))
    rows = _rows(tmp_path / "out")
    assert [row["image"] for row in rows] == names
    assert [row["class"] for row in rows] == [CLASSES[index] for index in said.prediction]
    assert [float(row["epistemic"]) for row in rows] == said.epistemic.tolist()
    assert list(rows[0]) == [
        "image", "class", "class_index", "probability", "p_one", "p_two", "p_three", "aleatoric", "epistemic"
    ]  # fmt: skip
    assert predicted.by_class == {name: float((said.prediction == c).sum()) for c, name in enumerate(CLASSES)}
    assert predicted.aleatoric == pytest.approx(float(said.aleatoric.mean()))
    assert predicted.epistemic == pytest.approx(float(said.epistemic.mean()))


def test_what_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.png", "c.png")
    for name in ("b.png", "d.jpg"):
        (pictures / name).write_bytes(b"nothing")
    hearing = RecordingCallback()
    predicted = predict_images(made_up(), pictures, tmp_path / "out", callback=hearing)
    assert (predicted.images, predicted.skipped) == (2, 2)
    assert [row["image"] for row in _rows(tmp_path / "out")] == ["a.png", "c.png"]
    assert ["b.png" in hearing.notes[0], "d.jpg" in hearing.notes[1]] == [True, True]


def test_when_nothing_can_be_read_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"nothing")
    with pytest.raises(FealError, match="None of the 1 images"):
        predict_images(made_up(), tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("extension", ["png", "tif"])
def test_masks_and_maps_have_the_picture_s_own_size(extension: str, tmp_path: Path) -> None:
    model = made_up("unet")
    pictures = _pictures(tmp_path / "in", f"deep/a.{extension}", width=50, height=70)
    predict_images(model, pictures, tmp_path / "out", values=True)
    (row,) = _rows(tmp_path / "out")
    resized = Image.open(pictures / f"deep/a.{extension}").resize((32, 32), Image.Resampling.BICUBIC)
    pixels = np.asarray(resized).transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    said = model.predict(torch.from_numpy(pixels)[None])
    small = said.prediction[0].numpy().astype(np.uint8)
    with Image.open(tmp_path / "out" / row["mask"]) as mask:
        assert (mask.mode, mask.size) == ("P", (50, 70))
        assert (np.array(mask) == np.asarray(Image.fromarray(small).resize((50, 70), 0))).all()
    for name in ("aleatoric_map", "epistemic_map"):
        with Image.open(tmp_path / "out" / row[name]) as drawn:
            assert (drawn.mode, drawn.size) == ("P", (50, 70))
    assert row["mask"] == "masks/deep/a.png"
    values = np.load(tmp_path / "out" / row["values"])
    assert values.dtype == np.float32
    assert (values[0] == said.aleatoric[0].float().numpy()).all()
    assert (values[1] == said.epistemic[0].float().numpy()).all()
    expected = said.probability.amax(1).double().mean()
    assert float(row["probability"]) == pytest.approx(float(expected), abs=1e-9)
    assert float(row["aleatoric"]) == float(said.aleatoric.mean())
    assert [float(row[f"share_{name}"]) for name in CLASSES] == [(small == c).mean() for c in range(3)]


@pytest.mark.parametrize(("width", "height"), [(60, 30), (20, 80), (32, 32)])
def test_the_rim_of_a_letterbox_is_taken_off_again(width: int, height: int, tmp_path: Path) -> None:
    size = {"channels": 3, "height": 32, "width": 32, "dtype": "uint8", "scale": 255.0}
    model = made_up("unet", input={**size, "fitting": {"shape": "letterbox"}})
    pictures = _pictures(tmp_path / "in", "a.png", "b.png", width=width, height=height)
    predicted = predict_images(model, pictures, tmp_path / "out", values=True)
    high, wide = 32 * height // max(width, height), 32 * width // max(width, height)
    top, left = (32 - high) // 2, (32 - wide) // 2
    pixels = np.zeros((2, 3, 32, 32), dtype=np.float32)
    for place, name in enumerate(("a.png", "b.png")):
        small = Image.open(pictures / name).resize((wide, high), Image.Resampling.BILINEAR)
        shown = np.asarray(small).transpose(2, 0, 1) / np.float32(255)
        pixels[place, :, top : top + high, left : left + wide] = shown
    said = model.predict(torch.from_numpy(pixels))
    inside = (slice(top, top + high), slice(left, left + wide))
    for place, row in enumerate(_rows(tmp_path / "out")):
        mask = said.prediction[place].numpy().astype(np.uint8)[inside]
        with Image.open(tmp_path / "out" / row["mask"]) as drawn:
            assert (np.array(drawn) == np.asarray(Image.fromarray(mask).resize((width, height), 0))).all()
        with Image.open(tmp_path / "out" / row["aleatoric_map"]) as drawn:
            assert drawn.size == (width, height)
        assert [float(row[f"share_{name}"]) for name in CLASSES] == [(mask == c).mean() for c in range(3)]
        assert float(row["epistemic"]) == pytest.approx(said.epistemic[place].numpy()[inside].mean(), abs=1e-12)
        sure = said.probability[place].amax(0).numpy()[inside]
        assert float(row["probability"]) == pytest.approx(sure.mean(), abs=1e-6)
        values = np.load(tmp_path / "out" / row["values"])
        assert (values[0] == said.aleatoric[place].float().numpy()[inside]).all()
    assert sum(predicted.by_class.values()) == pytest.approx(1)


def test_pictures_of_one_name_keep_masks_of_their_own(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.bmp", "a.png", "a-2.png", "A.tif")
    predict_images(made_up("unet"), pictures, tmp_path / "out")
    rows = _rows(tmp_path / "out")
    masks = [row["mask"].casefold() for row in rows]
    assert len(set(masks)) == 4
    assert all((tmp_path / "out" / row["mask"]).is_file() for row in rows)
    assert "values" not in rows[0]
    assert not list((tmp_path / "out").rglob("*.npy"))


def test_maps_are_dark_where_the_model_is_sure_and_keep_their_scale() -> None:
    levels = np.linspace(0, 1, 256).reshape(1, 256)
    picture = render_map(levels)
    assert np.array(picture).ravel().tolist() == list(range(256))
    brightness = np.array(picture.convert("RGB").convert("L")).ravel().astype(int)
    assert (np.diff(brightness) >= 0).all()
    assert brightness[0] < 5
    assert brightness[-1] > 240


def test_shares_of_uncertainty_end_where_evidence_does() -> None:
    from feal.evidential import uncertainties

    for classes in (2, 5):
        alpha = torch.ones(3, classes)
        alpha[1, 0], alpha[2] = 1000.0, 1000.0
        aleatoric, epistemic = (part.numpy() for part in uncertainties(alpha))
        wide = scale_epistemic(epistemic, classes=classes)
        assert wide[0] == pytest.approx(1)
        assert (wide[1:] < 0.1).all()
        assert scale_aleatoric(aleatoric, classes=classes)[2] == pytest.approx(1, abs=1e-2)
        assert scale_aleatoric(aleatoric, classes=classes)[1] < 0.05


def test_an_output_that_is_taken_or_among_the_pictures(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.png")
    with pytest.raises(FealError, match="among the images"):
        predict_images(made_up(), pictures, pictures / "out")
    with pytest.raises(FealError, match="choose another --out"):
        predict_images(made_up(), pictures, pictures.parent)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.png", "in"]


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_up("unet")
    pictures = _pictures(tmp_path / "in", *(f"{number}.png" for number in range(6)))
    predict = model.predict

    def interrupted(images: torch.Tensor) -> object:
        if len(images) < 4:
            raise KeyboardInterrupt
        return predict(images)

    monkeypatch.setattr(model, "predict", interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict_images(model, pictures, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_model_that_pictures_do_not_fit_is_said_first(tmp_path: Path) -> None:
    size = {"channels": 3, "height": 32, "width": 32, "dtype": "float16", "scale": None}
    model: TrainedModel = made_up(input=size)
    with pytest.raises(FealError, match="float16 images"):
        predict_images(model, tmp_path / "missing", tmp_path / "out")


def test_the_folder_explains_itself(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.png")
    predict_images(made_up(), pictures, tmp_path / "classes")
    predict_images(made_up("unet"), pictures, tmp_path / "masks")
    assert "maps/" not in (tmp_path / "classes" / "README.md").read_text()
    about = (tmp_path / "masks" / "README.md").read_text()
    assert "0 one, 1 two, 2 three" in about
    assert "lnGamma(C)) / (C - 1)" in about


def _lesion_images(root: Path) -> Path:
    """Two sites of oblong pictures in two classes."""
    for number in range(40):
        draw = np.random.default_rng(number)
        coarse = Image.fromarray(draw.integers(0, 256, (4, 5, 3), dtype=np.uint8))
        path = root / ("alder", "birch")[number % 2] / ("dark", "light")[number // 2 % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((60, 20 + number), Image.Resampling.BILINEAR).save(path)
    return root


def test_a_picture_gets_the_numbers_that_its_prepared_image_has(tmp_path: Path) -> None:
    pictures = _lesion_images(tmp_path / "pictures")
    own = open_image_folder(pictures, task="classification", name="mine")
    data = open_prepared(prepare_dataset(own, pictures, tmp_path / "data", size=32, threads=1).root)
    changes = {"rounds": 1, "communication_rounds": 1, "budget": 2, "selection": {"batch_size": 64}}
    run = start(tiny(dataset=str(data.root), **changes), out=tmp_path / "run")
    kept = json.loads((run.folder / "state.json").read_text())["facts"]["fitting"]
    assert kept["shape"] == "letterbox"
    export_model(load_model(run.folder), tmp_path / "export", format="none")
    model = load_model(tmp_path / "export")
    assert model.info.input.fitting == Fitting(shape="letterbox")
    assert "the long side resized to fit, centred on black" in (tmp_path / "export" / "README.md").read_text()

    predict_images(model, pictures / "alder", tmp_path / "out")
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
        ({"shape": "canvas", "canvas": 400}, "the side being 400 pixels of the file"),
        ({"shape": "centre", "colour": "constant"}, "the middle cut out; colours as under white light"),
    ):
        size = {**make_info().input.model_dump(), "fitting": fitting}
        assert words in render_model_card(make_info(input=size), name="m", formats=[])
