import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from feal.errors import FealError
from feal.experiment import Result, start
from feal.federation.callbacks import NullCallback
from feal.fileio import lock_directory
from feal.inference import export_model, load_model
from feal.rundir.journal import Journal
from tests.runs import tiny
from tests.trained import made_up


class Until(NullCallback):
    """Interrupts a run once a communication round is done."""

    def __init__(self, round: int, step: int) -> None:
        self._when = (round, step)

    def on_step(self, *, round: int, step: int, losses: object) -> None:
        if (round, step) == self._when:
            raise KeyboardInterrupt


def _interrupted(folder: Path, *, round: int, step: int) -> Path:
    with pytest.raises(KeyboardInterrupt):
        start(tiny(), out=folder, callback=Until(round, step))
    return folder


def _contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_newest_round_or_the_one_asked_for(lesions: Result) -> None:
    for asked, number in ((None, 2), (1, 1), (2, 2)):
        model = load_model(lesions.folder, round=asked)
        assert model.info.origin.round == number
        assert model.info.origin.labels == lesions.rounds[number - 1].labels
        assert model.info.origin.metrics == lesions.rounds[number - 1].metrics


@pytest.mark.parametrize("round_", [0, 3, -1])
def test_a_round_that_is_not_there(lesions: Result, round_: int) -> None:
    with pytest.raises(FealError, match=rf"no finished round {round_}: the newest is round 2"):
        load_model(lesions.folder, round=round_)


def test_a_run_under_way_gives_its_last_committed_round_and_is_not_disturbed(tmp_path: Path) -> None:
    folder = _interrupted(tmp_path / "run", round=2, step=0)
    before = _contents(folder)
    with lock_directory(folder):
        before[".lock"] = _contents(folder)[".lock"]
        model = load_model(folder)
        assert _contents(folder) == before
    assert model.info.origin.round == 1
    assert model.info.origin.metrics["balanced_accuracy"].mean >= 0


def test_a_round_whose_figures_are_still_to_come(tmp_path: Path) -> None:
    folder = _interrupted(tmp_path / "run", round=1, step=1)
    origin = load_model(folder).info.origin
    assert (origin.round, origin.metrics, origin.tested) == (1, {}, {})
    assert origin.labels == {"alder": 5, "birch": 5}


def test_a_waiting_run(tmp_path: Path) -> None:
    folder = _interrupted(tmp_path / "run", round=2, step=0)
    journal = Journal(folder)
    journal.commit(replace(journal.load(), stage="waiting", round=1))
    assert load_model(folder).info.origin.round == 1


def test_before_the_first_round_there_is_nothing(tmp_path: Path) -> None:
    folder = _interrupted(tmp_path / "run", round=1, step=0)
    with pytest.raises(FealError, match="no finished round yet"):
        load_model(folder)
    (folder / "state.json").unlink()
    with pytest.raises(FealError, match="no finished round yet"):
        load_model(folder)


def test_state_without_facts_about_the_images_is_damaged(lesions: Result, tmp_path: Path) -> None:
    content = json.loads((lesions.folder / "state.json").read_text())
    del content["facts"]
    (tmp_path / "state.json").write_text(json.dumps(content))
    for name in ("config.yaml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((lesions.folder / name).read_bytes())
    with pytest.raises(FealError, match="classes and sizes of the images are missing"):
        load_model(tmp_path)


def test_neither_run_nor_export(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FealError, match="neither a run directory nor an exported model"):
            load_model(place)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    export_model(made_up(), tmp_path / "out", format="none")
    return tmp_path / "out"


def test_an_export_has_one_round(exported: Path) -> None:
    assert load_model(exported, round=1).info.origin.round == 1
    with pytest.raises(FealError, match="holds round 1 only"):
        load_model(exported, round=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "not of format 1"),
        ({"classes": ["one"]}, "damaged .classes"),
        ({"loss": {"name": "evidential", "activation": "sigmoid"}}, "loss.activation=sigmoid is not valid"),
        ({"extra": 1}, "damaged .extra"),
        ({"sha256": "0" * 64}, "checksum differs"),
        ({"model": "tiny-ccn"}, "did you mean 'tiny-cnn'"),
        ({"classes": ["one", "two"]}, "do not fit a tiny-cnn of 2 classes"),
    ],
)
def test_an_export_that_is_not_what_was_written(exported: Path, change: dict, said: str) -> None:
    content = json.loads((exported / "model.json").read_text())
    (exported / "model.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(FealError, match=said):
        load_model(exported)


@pytest.mark.parametrize("content", ["{", "[]", "7"])
def test_facts_that_are_none(exported: Path, content: str) -> None:
    (exported / "model.json").write_text(content)
    with pytest.raises(FealError, match=r"model\.json is damaged"):
        load_model(exported)


def test_predictions_are_of_the_shapes_that_are_promised() -> None:
    images = torch.rand(9, 3, 32, 32)
    said = made_up("tiny-cnn").predict(images)
    assert said.prediction.shape == said.aleatoric.shape == said.epistemic.shape == (9,)
    assert said.probability.shape == (9, 3)
    said = made_up("unet").predict(images)
    assert said.prediction.shape == said.aleatoric.shape == said.epistemic.shape == (9, 32, 32)
    assert said.probability.shape == (9, 3, 32, 32)


def test_threads_are_the_run_s_and_then_the_caller_s(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made_up(evaluation={"batch_size": 4, "threads": 2, "device": "cpu"})
    seen = []
    outputs = model.network.outputs
    monkeypatch.setattr(
        model.network, "outputs", lambda images: (seen.append(torch.get_num_threads()), outputs(images))[1]
    )
    before = torch.get_num_threads()
    model.predict(torch.rand(5, 3, 32, 32))
    assert seen == [2, 2]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 1, 32, 32), (1, 3, 16, 32)])
def test_images_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\[n, 3, 32, 32\]"):
        made_up().predict(torch.rand(shape))
