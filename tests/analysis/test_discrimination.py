import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score

from feal.analysis import read_discrimination
from feal.analysis.discrimination import class_roc_auc, roc_auc
from feal.data import locate, open_prepared, open_truth
from feal.errors import FealError
from feal.experiment import Result, start
from feal.experiment.folder import RunFolder, settings_of
from feal.settings import Loss
from tests.runs import differences, fingerprint, tiny, tiny_polyps


@settings(max_examples=40)
@given(st.integers(0, 2**16), st.integers(2, 5), st.integers(1, 30), st.booleans())
def test_roc_auc_is_that_of_scikit_learn(seed: int, classes: int, samples: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    probability = draw.dirichlet(np.ones(classes), samples)
    if ties:
        probability = probability.round(1)
    truth = draw.integers(0, classes, samples)
    expected = [
        roc_auc_score(truth == number, probability[:, number]) if 0 < (truth == number).sum() < samples else None
        for number in range(classes)
    ]
    assert class_roc_auc(probability, truth) == pytest.approx(tuple(expected))
    known = [area for area in expected if area is not None]
    assert roc_auc(probability, truth) == (pytest.approx(np.mean(known)) if known else None)


def test_two_classes_have_one_area_and_a_lone_class_none() -> None:
    probability = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    truth = np.array([0, 1, 1, 0])
    assert roc_auc(probability, truth) == pytest.approx(roc_auc_score(truth, probability[:, 1]))
    assert roc_auc(probability, np.zeros(4, dtype=int)) is None
    assert class_roc_auc(np.empty((0, 2)), np.empty(0, dtype=int)) == (None, None)


@pytest.fixture(scope="module", params=["evidential", "plain"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    loss: Loss = request.param
    return start(tiny(strategy="random", loss=loss), out=tmp_path_factory.mktemp("runs") / loss)


def test_a_run_s_areas_come_from_what_the_sites_kept(run: Result) -> None:
    before = fingerprint(run.folder)
    told = read_discrimination(run.folder)
    assert differences(before, fingerprint(run.folder)) == []
    assert [entry.round for entry in told] == [1, 2]
    config = settings_of(RunFolder(run.folder))
    data = open_prepared(locate(config.dataset, synthetic=config.synthetic.model_dump()))
    for entry in told:
        everything = []
        for name in data.sites:
            kept = load_file(
                run.folder / "sites" / name / "diagnostics" / f"evaluation-{entry.round:03}.safetensors"
            )
            logits = kept["logits"].double()
            alpha = logits.relu() + 1
            evidential = config.loss == "evidential"
            probability = (alpha / alpha.sum(1, keepdim=True) if evidential else logits.softmax(1)).numpy()
            truth = open_truth(data.site(name)).of(data.site(name).ids("test")).numpy()
            everything.append((probability, truth))
            assert entry.sites[name] == pytest.approx(_by_scikit_learn(probability, truth), abs=1e-3)
        pooled = [np.concatenate(parts) for parts in zip(*everything, strict=True)]
        assert entry.pooled == pytest.approx(_by_scikit_learn(*pooled), abs=1e-3)
        assert entry.mean == pytest.approx(np.mean([entry.sites[name] for name in data.sites]))
        assert len(entry.classes) == 5


def _by_scikit_learn(probability: np.ndarray, truth: np.ndarray) -> float:
    there = [number for number in range(probability.shape[1]) if 0 < (truth == number).sum() < len(truth)]
    return float(np.mean([roc_auc_score(truth == number, probability[:, number]) for number in there]))


def test_data_that_are_others_or_not_drawn_any_more(
    run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    with closing(sqlite3.connect(copy / "sites" / "birch" / "site.sqlite")) as database, database:
        database.execute("UPDATE site SET data = 'other'")
    with pytest.raises(FealError, match="not the prepared set that .*birch had in the run"):
        read_discrimination(copy)
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "empty"))
    with pytest.raises(FealError, match="is not drawn in"):
        read_discrimination(run.folder, draw=False)
    assert not (tmp_path / "empty").exists()


def test_what_cannot_be_judged_is_one_sentence(run: Result, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    file = next(copy.glob("sites/*/diagnostics/evaluation-001.safetensors"))
    save_file({**load_file(file), "rows": torch.arange(3)}, file)
    with pytest.raises(FealError, match="other test samples"):
        read_discrimination(copy)
    for kept in copy.glob("sites/*/diagnostics/evaluation-*.safetensors"):
        kept.unlink()
    with pytest.raises(FealError, match="kept nothing"):
        read_discrimination(copy)
    RunFolder(copy).write_config(tiny_polyps())
    (copy / "state.json").unlink()
    with pytest.raises(FealError, match="segmentation, which has no ROC curve"):
        read_discrimination(copy)
