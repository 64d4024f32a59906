from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal import inference
from feal.cli import console
from feal.inference import export_model
from tests.command import Command
from tests.trained import made_up


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An exported model `blocks` and a folder of pictures, in the current folder."""
    monkeypatch.chdir(tmp_path)
    export_model(made_up(), tmp_path / "blocks", format="none")
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    return tmp_path


def test_predict_says_what_came_out_and_where_it_lies(command: Command, place: Path) -> None:
    (place / "pictures" / "bad.png").write_bytes(b"nothing")
    ended = command("predict", "blocks", "--images", "pictures")
    assert ended.code == 0, ended.err
    assert "Skipped: pictures/bad.png cannot be read" in ended.out
    assert "3 images predicted, 1 skipped: predictions/blocks/predictions.csv" in ended.out
    assert "mean epistemic" in ended.out
    assert "\x1b" not in ended.out
    assert command("predict", "blocks", "--images", "pictures").code == 0
    assert sorted(path.name for path in (place / "predictions").iterdir()) == ["blocks", "blocks-2"]


def test_segmentation_names_its_folders(command: Command, place: Path) -> None:
    export_model(made_up("unet"), place / "unet", format="none")
    ended = command("predict", "unet", "--images", "pictures", "--out", "out", "--values")
    assert ended.code == 0, ended.err
    assert "share of pixels" in ended.out
    assert len(list((place / "out" / "masks").iterdir())) == 3
    assert len(list((place / "out" / "maps").iterdir())) == 9


def test_a_long_prediction_speaks_now_and_then(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    assert "predicting images: 2 of 3" in command("predict", "blocks", "--images", "pictures").out


def test_export_names_its_files_and_the_next_command(command: Command, place: Path) -> None:
    ended = command("export", "blocks")
    assert ended.code == 0, ended.err
    assert "exports/blocks/model.torchscript" in ended.out
    assert "feal predict exports/blocks --images FOLDER" in ended.out
    assert command("export", "blocks", "--format", "none", "--out", "bare").code == 0
    assert not (place / "bare" / "model.torchscript").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "nothing", "--images", "pictures"], "neither a run directory nor an exported model"),
        (["predict", "blocks", "--images", "nothing"], "There is no folder nothing"),
        (["predict", "blocks", "--images", "blocks"], "no image in blocks"),
        (["predict", "blocks", "--images", "pictures", "--out", "blocks"], "choose another --out"),
        (["predict", "blocks", "--images", "pictures", "--round", "2"], "holds round 1 only"),
        (["export", "nothing"], "neither a run directory nor an exported model"),
        (["export", "blocks", "--out", "blocks"], "choose another --out"),
        (["export", "blocks", "--format", "pickle"], "pickle"),
        (["predict", "blocks"], "--images"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    command: Command, place: Path, words: list[str], said: str
) -> None:
    before = sorted(place.rglob("*"))
    ended = command(*words)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert "Traceback" not in ended.err
    assert sorted(place.rglob("*")) == before


def test_an_interruption_says_that_nothing_is_lost(
    command: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(inference, "predict_images", interrupt)
    ended = command("predict", "blocks", "--images", "pictures")
    assert ended.code == 130
    assert "Interrupted: no predictions were written" in ended.out
