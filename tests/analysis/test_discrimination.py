import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score

from feal.analysis import read_discrimination
from feal.data import locate, open_labels, open_prepared
from feal.errors import FealError
from feal.experiment import Result, start
from feal.rundir.journal import read_settings, write_config
from feal.rundir.layout import RunDirectory
from tests.runs import differences, fingerprint, tiny, tiny_polyps


@pytest.fixture(scope="module", params=["evidential", "plain"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    loss: str = request.param
    return start(tiny(strategy="random", loss=loss), out=tmp_path_factory.mktemp("runs") / loss)


def test_a_run_s_areas_come_from_what_the_sites_kept(run: Result) -> None:
    before = fingerprint(run.folder)
    told = read_discrimination(run.folder)
    assert differences(before, fingerprint(run.folder)) == []
    assert [entry.round for entry in told] == [1, 2]
    config = read_settings(run.folder)
    data = open_prepared(locate(config.dataset))
    for entry in told:
        everything = []
        for name in data.sites:
            kept = load_file(
                run.folder / "sites" / name / "diagnostics" / f"evaluation-{entry.round:03}.safetensors"
            )
            logits = kept["logits"].double()
            alpha = logits.relu() + 1
            evidential = config.loss_name == "evidential"
            probability = (alpha / alpha.sum(1, keepdim=True) if evidential else logits.softmax(1)).numpy()
            truth = open_labels(data.site(name)).of(data.site(name).ids("test")).numpy()
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
    write_config(RunDirectory(copy), tiny_polyps().dump())
    (copy / "state.json").unlink()
    with pytest.raises(FealError, match="segmentation, which has no ROC curve"):
        read_discrimination(copy)
