"""`feal data prepare`, `check` and `show` as a person types them."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from feal.data import locate
from tests.command import Command

OWN = """
from feal.data.prepare import DatasetSource, DecodedSample, ScanResult, SourceRecord
from feal.data.prepare.decode import decode_image, to_rgb
from feal.data.resize import Fitting


class Mine(DatasetSource):
    name = "mine"
    task = "classification"
    classes = ("a", "b")
    size = 32

    def scan(self, folder):
        files = sorted(folder.rglob("*.png"))
        labels = ["ab".index(file.parent.name) for file in files]
        records = [SourceRecord(site="alder", id=f.stem, image=f, label=n) for f, n in zip(files, labels)]
        return ScanResult(records=records)

    def read(self, record, *, size):
        image = Fitting().fit_image(to_rgb(decode_image(record.image)), size, size)
        return [DecodedSample(id=record.id, image=image.transpose(2, 0, 1), label=record.label)]
"""


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for number in range(20):
        path = tmp_path / "pictures" / ("alder", "birch")[number // 10] / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((40, 40), Image.Resampling.BICUBIC).save(path)
    return tmp_path / "pictures"


def _preparing(pictures: Path) -> tuple[object, ...]:
    task = ("--task", "classification", "--size", 32)
    return ("data", "prepare", "folder", "--from", pictures, *task, "--to", "to")


def test_pictures_are_prepared_checked_and_shown(command: Command, pictures: Path) -> None:
    words = _preparing(pictures)
    first = command(*words, "--name", "mine", "--threads", 1)
    assert first.code == 0, first.err
    assert "is prepared" in first.out
    assert "feal data show to" in first.out
    again = command(*words, "--name", "mine")
    assert "was already prepared from the same files: nothing was done" in again.out
    checked = command("data", "check", "to")
    assert checked.code == 0
    assert "to is intact: 2 sites" in checked.out
    shown = command("data", "show", "to", "--out", "sheets")
    assert shown.code == 0
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["site", "split", "samples", "a", "b"] in rows
    assert next(row for row in rows if row[:2] == ["alder", "train"])[2] == "8"
    assert sorted(path.name for path in Path("sheets").iterdir()) == ["alder.png", "birch.png"]


def test_findings_are_a_table_and_exit_code_2(command: Command, pictures: Path) -> None:
    bad = pictures / "alder" / "a" / "00.png"
    bad.write_bytes(b"[bold]none")
    words = _preparing(pictures)
    ended = command(*words, "--threads", 1)
    assert ended.code == 2
    assert "alder/a/00.png" in ended.out
    assert ended.err.startswith("Error: 1 problem was found in")
    assert "--skip-bad" in ended.err
    assert not Path("to").exists()
    without = command(*words, "--threads", 1, "--skip-bad")
    assert without.code == 0, without.err
    assert "Left out, 1 findings" in without.out
    assert json.loads(Path("to/manifest.json").read_text())["source"]["left_out"][0]["file"] == "alder/a/00.png"


def test_a_damaged_set(command: Command, pictures: Path) -> None:
    command(
        "data", "prepare", "folder", "--from", pictures, "--task", "classification", "--size", 32, "--to", "to"
    )
    stored = np.load("to/alder/images.npy", mmap_mode="r+")
    stored[0, 0, 0, 0] ^= 1
    stored.flush()
    Path("to/birch/truth.npy").unlink()
    ended = command("data", "check", "to")
    assert ended.code == 2
    for part in ("alder/images.npy", "birch/truth.npy", "is missing", "differs from its checksum"):
        assert part in " ".join(ended.out.split())
    assert "is not as it was prepared, 3 problems" in ended.err
    shown = command("data", "show", "to", "--out", "sheets")
    assert shown.code == 2
    assert "is not as it was prepared, 2 problems (the first: alder/images.npy: differs" in shown.err
    assert not Path("sheets").exists()


def test_a_class_of_ones_own_also_in_threads(command: Command, pictures: Path) -> None:
    Path("my_set.py").write_text(OWN)
    ended = command("data", "prepare", "my_set.py:Mine", "--from", pictures, "--to", "to", "--threads", 2)
    assert ended.code == 0, ended.err
    assert "mine: classification, 32 x 32 pixels, 3 channels" in ended.out


def test_mistakes(command: Command, pictures: Path) -> None:
    Path("my_set.py").write_text(OWN)
    for words, said in (
        (("folder", "--from", pictures), "needs a task: add --task"),
        (("fed-isik", "--from", pictures), "There is no data set 'fed-isik'"),
        (("my_set.py", "--from", pictures), "name the data set in it, too, as my_set.py:Class"),
        (("my_set.py:Mime", "--from", pictures), "did you mean 'Mine'"),
        (("my_set.py:Mine", "--from", pictures, "--task", "segmentation"), "Mine takes no --task"),
        (("folder", "--from", "nowhere", "--task", "segmentation"), "There is no folder nowhere"),
    ):
        ended = command("data", "prepare", *words)
        assert ended.code == 2
        assert said in ended.err, ended.err
    assert command("data", "check", pictures).code == 2


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("    size = 32\n", "", "Mine needs the attribute `size`, a whole number of pixels"),
        ('    name = "mine"\n', "", "Mine needs the attribute `name`"),
        ('task = "classification"', 'task = "guessing"', "`task`, classification or segmentation"),
        ("label=n)", "label=n, group=3)", "`group` is 3: it must be str or None"),
        ("label=n)", 'label=n, split="val")', "is in the split 'val': use train or test"),
        ("ScanResult(records=records)", "records", "returned a list: it must return a ScanResult"),
        ("files = sorted", "files = nothing", "Mine fails to scan"),
        ("image = Fitting()", "image = nothing", "NameError: name 'nothing' is not defined"),
        ("return [DecodedSample(", "return [dict(", "did not return decoded samples"),
    ],
)
def test_mistakes_in_a_class_are_one_sentence(
    command: Command, pictures: Path, old: str, new: str, sentence: str
) -> None:
    assert OWN.count(old) == 1
    Path("my_set.py").write_text(OWN.replace(old, new))
    ended = command("data", "prepare", "my_set.py:Mine", "--from", pictures, "--to", "to", "--threads", 1)
    assert ended.code == 2
    assert sentence in " ".join((ended.out + ended.err).split())
    assert "Traceback" not in ended.err


def test_the_pages_class_finds_a_picture_of_another_name(command: Command, pictures: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "add-a-dataset.md").read_text()
    Path("my_set.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    for number, path in enumerate(sorted(pictures.rglob("*.png"))):
        path.rename(pictures / f"alder-p{number}-{('benign', 'malignant')[number % 2]}-{number}.png")
    Image.new("RGB", (9, 9)).save(pictures / "readme.png")
    ended = command("data", "prepare", "my_set.py:MySet", "--from", pictures, "--to", "to", "--threads", 1)
    assert ended.code == 2
    assert "1 problem was found" in ended.err
    assert "readme.png is not called SITE-PATIENT-CLASS-NUMBER.png" in " ".join(ended.err.split())


@pytest.mark.parametrize("preset", ["fed-isic-small", "fed-polyp-small"])
def test_small_presets_say_how_to_prepare_them(preset: str) -> None:
    content = yaml.safe_load((files("feal.config") / "presets" / f"{preset}.yaml").read_text())
    assert content["about"].endswith("prepare with --size 128")
    assert content["dataset"]["size"] == 128


def test_sizes_of_a_set_lie_side_by_side(
    command: Command, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pictures.parent / "kept"
    monkeypatch.setenv("FEAL_DATA", str(kept))
    words = ("data", "prepare", "folder", "--from", pictures, "--task", "classification", "--name", "mine")
    for size in (32, 48):
        assert command(*words, "--size", size, "--threads", 1).code == 0
    assert sorted(path.name for path in kept.iterdir()) == ["mine-32", "mine-48"]
    assert "mine-48 is intact" in "".join(command("data", "check", "mine", "size=48").out.split("\n"))
    assert command("data", "show", "mine", "size=32", "--out", "sheets").code == 0
    assert command("data", "check", "mine-32").code == 0
    ended = command("data", "check", "mine")
    assert ended.code == 2
    told = " ".join(ended.err.split())
    assert f"(dataset.size=32 in {kept}/mine-32, dataset.size=48 in {kept}/mine-48)" in told
    refused = " ".join(command("data", "check", "mine", "size=64").err.split())
    assert "is not prepared at 64 pixels in" in refused
    assert "`feal data prepare folder --name mine --from DOWNLOAD --size 64`" in refused
    assert locate("mine", params={"size": 32}) == kept / "mine-32"


def test_splits_of_a_set_lie_side_by_side(
    command: Command, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = pictures.parent / "kept"
    monkeypatch.setenv("FEAL_DATA", str(kept))
    words = ("data", "prepare", "folder", "--from", pictures, "--task", "classification", "--name", "mine")
    for rule in ("shipped", "8:2"):
        assert command(*words, "--split", rule, "--threads", 1).code == 0
    assert sorted(path.name for path in kept.iterdir()) == ["mine", "mine-8-2"]
    again = command(*words, "--split", "8:2", "--threads", 1)
    assert "mine-8-2 was already prepared from the same files" in " ".join(again.out.split())
    assert "mine-8-2 is intact" in "".join(command("data", "check", "mine", "split=8:2").out.split("\n"))
    refused = command(*words, "--split", "8:2", "--to", kept / "mine")
    assert refused.code == 2
    assert "mine holds mine with the split shipped, not 8:2" in " ".join(refused.err.split())
    assert command(*words, "--split", "1:1").code == 2


def test_a_set_is_checked_by_its_name(command: Command, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(pictures.parent / "kept"))
    options = ("--from", pictures, "--task", "classification", "--size", 32, "--name", "mine")
    prepared = command("data", "prepare", "folder", *options, "--classes", "a, b")
    assert prepared.code == 0
    checked = command("data", "check", "mine")
    assert checked.code == 0
    assert "mine-32 is intact: 2 sites" in checked.out.replace("\n", "")
    manifest = json.loads((pictures.parent / "kept" / "mine-32" / "manifest.json").read_text())
    assert manifest["classes"] == ["a", "b"]


@pytest.mark.slow
def test_data_sets_are_listed_prepared_and_checked_without_torch(pictures: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    for words in (
        ("list", "datasets"),
        ("data", "prepare", "--help"),
        ("data", "prepare", "folder", "--from", pictures, "--task", "classification", "--size", 32, "--to", to),
        ("data", "check", to),
    ):
        code = (
            "import sys; from feal.cli.app import app; app(standalone_mode=False); print('torch' in sys.modules)"
        )
        ended = subprocess.run(
            [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=True
        )
        assert ended.stdout.splitlines()[-1] == "False", words
