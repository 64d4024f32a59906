import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from feal.errors import FealError
from feal.inference import Audience, TrainedModel, predict_folder
from feal.inference.maps import aleatoric_share, epistemic_share, map_picture
from tests.trained import CLASSES, made_up


class Hearing(Audience):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.notes: list[str] = []

    def looked(self, done: int, total: int) -> None:
        self.steps.append((done, total))

    def left_out(self, sentence: str) -> None:
        self.notes.append(sentence)


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
    model, hearing = made_up(), Hearing()
    names = [f"{number:02}.png" for number in range(10)]
    pictures = _pictures(tmp_path / "in", *names)
    sizes = []
    predict = model.predict
    monkeypatch.setattr(model, "predict", lambda images: (sizes.append(len(images)), predict(images))[1])
    predicted = predict_folder(model, pictures, tmp_path / "out", audience=hearing)
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
    hearing = Hearing()
    predicted = predict_folder(made_up(), pictures, tmp_path / "out", audience=hearing)
    assert (predicted.images, predicted.skipped) == (2, 2)
    assert [row["image"] for row in _rows(tmp_path / "out")] == ["a.png", "c.png"]
    assert ["b.png" in hearing.notes[0], "d.jpg" in hearing.notes[1]] == [True, True]


def test_when_nothing_can_be_read_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(b"nothing")
    with pytest.raises(FealError, match="None of the 1 pictures"):
        predict_folder(made_up(), tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("extension", ["png", "tif"])
def test_masks_and_maps_have_the_picture_s_own_size(extension: str, tmp_path: Path) -> None:
    model = made_up("unet")
    pictures = _pictures(tmp_path / "in", f"deep/a.{extension}", width=50, height=70)
    predict_folder(model, pictures, tmp_path / "out", values=True)
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
    predicted = predict_folder(model, pictures, tmp_path / "out", values=True)
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
    predict_folder(made_up("unet"), pictures, tmp_path / "out")
    rows = _rows(tmp_path / "out")
    masks = [row["mask"].casefold() for row in rows]
    assert len(set(masks)) == 4
    assert all((tmp_path / "out" / row["mask"]).is_file() for row in rows)
    assert "values" not in rows[0]
    assert not list((tmp_path / "out").rglob("*.npy"))


def test_maps_are_dark_where_the_model_is_sure_and_keep_their_scale() -> None:
    levels = np.linspace(0, 1, 256).reshape(1, 256)
    picture = map_picture(levels)
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
        wide = epistemic_share(epistemic, classes=classes)
        assert wide[0] == pytest.approx(1)
        assert (wide[1:] < 0.1).all()
        assert aleatoric_share(aleatoric, classes=classes)[2] == pytest.approx(1, abs=1e-2)
        assert aleatoric_share(aleatoric, classes=classes)[1] < 0.05


def test_an_output_that_is_taken_or_among_the_pictures(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.png")
    with pytest.raises(FealError, match="among the pictures"):
        predict_folder(made_up(), pictures, pictures / "out")
    with pytest.raises(FealError, match="choose another --out"):
        predict_folder(made_up(), pictures, pictures.parent)
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
        predict_folder(model, pictures, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_model_that_pictures_do_not_fit_is_said_first(tmp_path: Path) -> None:
    size = {"channels": 3, "height": 32, "width": 32, "dtype": "float16", "scale": None}
    model: TrainedModel = made_up(input=size)
    with pytest.raises(FealError, match="float16 images"):
        predict_folder(model, tmp_path / "missing", tmp_path / "out")


def test_the_folder_explains_itself(tmp_path: Path) -> None:
    pictures = _pictures(tmp_path / "in", "a.png")
    predict_folder(made_up(), pictures, tmp_path / "classes")
    predict_folder(made_up("unet"), pictures, tmp_path / "masks")
    assert "maps/" not in (tmp_path / "classes" / "README.md").read_text()
    about = (tmp_path / "masks" / "README.md").read_text()
    assert "0 one, 1 two, 2 three" in about
    assert "lnGamma(C)) / (C - 1)" in about
