import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score

from feal.analysis.arms import pick_arm
from feal.analysis.outputs import (
    count_found_labels,
    make_context,
    read_discrimination,
    read_energies,
    read_pool,
    read_pool_logits,
    read_selected_logits,
)
from feal.analysis.runs import Run, open_run
from feal.data import locate, open_labels, open_prepared
from feal.errors import FealError
from feal.experiment import Result, start
from feal.federation.callbacks import NullCallback
from feal.rundir.journal import read_settings, write_config
from feal.rundir.layout import RunDirectory
from tests.analysis.fabricated import fabricated, keep
from tests.runs import differences, fingerprint, labels, tiny, tiny_polyps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "entropy"
    start(tiny(strategy="entropy"), out=out)
    return open_run(out)


def test_what_was_chosen_is_what_the_selections_name(run: Run) -> None:
    data = open_prepared(locate(run.settings.dataset))
    expected = []
    for site in run.sites:
        kept = load_file(run.path / "sites" / site / "diagnostics" / "round-001.safetensors")
        lines = (run.path / "sites" / site / "selections" / "round-002.csv").read_text().splitlines()[1:]
        rows = data.site(site).rows([line.split(",")[0] for line in lines])
        expected += [kept["logits_global"][kept["rows"].tolist().index(row)] for row in sorted(rows.tolist())]
    found = read_selected_logits(run, 1)
    order = [sorted(logits.tolist() for logits in some) for some in (found, torch.stack(expected))]
    assert order[0] == order[1]
    assert len(found) == 10
    assert len(read_pool_logits(run, 1)) == sum(len(data.site(site).ids("train")) - 5 for site in run.sites)


def test_the_last_round_looks_at_its_pool_only_if_all_is_wanted(run: Run, tmp_path: Path) -> None:
    last = run.rounds[-1].round
    assert set(read_pool(run, last - 1)) == set(run.sites)
    assert read_pool(run, last) == {}
    start(tiny(strategy="entropy", diagnostics="all"), out=tmp_path / "all")
    whole = open_run(tmp_path / "all")
    assert set(read_pool(whole, last)) == set(run.sites)
    assert all(len(kept["selected"]) == 0 for kept in read_pool(whole, last).values())
    for site in run.sites:
        for name, column in read_pool(run, last - 1)[site].items():
            assert torch.equal(read_pool(whole, last - 1)[site][name], column)


def test_energies_are_those_that_the_histograms_count(run: Run) -> None:
    for record in run.rounds:
        own = read_energies(run, record.round)
        assert own.keys() == record.energy.keys() == set(run.sites)
        for site, values in own.items():
            assert np.histogram(values, 256, (-64, 64))[0].tolist() == record.energy[site]


def test_no_diagnostics_give_nothing(tmp_path: Path) -> None:
    run = fabricated(tmp_path)
    assert read_pool(run, 1) == read_energies(run, 1) == {}
    assert read_pool_logits(run, 1).shape == read_selected_logits(run, 1).shape == (0, 3)


def test_selected_samples_are_those_that_the_site_marked(tmp_path: Path) -> None:
    run = fabricated(tmp_path)
    keep(run, "alder", "round-001", rows=[4, 6, 9], selected=[9, 4], logits_global=np.eye(3, dtype=np.float32))
    keep(run, "birch", "round-001", rows=[1], logits_global=np.eye(3, dtype=np.float32)[:1])  # not marked
    assert read_selected_logits(run, 1).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    run = fabricated(tmp_path)
    keep(run, "alder", "round-001", rows=[1])
    (tmp_path / "sites" / "alder" / "diagnostics" / "round-001.safetensors").write_bytes(b"cut")
    with pytest.raises(FealError, match="round-001.safetensors is damaged"):
        read_pool_logits(run, 1)


def test_energies_of_segmentation_are_each_image_s(tmp_path: Path) -> None:
    run = fabricated(tmp_path, task="segmentation")
    keep(run, "alder", "evaluation-001", rows=[0, 1], energy=[-1.5, -2.0])
    assert read_energies(run, 1)["alder"].tolist() == [-1.5, -2.0]


def test_evidence_is_read_as_the_run_was_trained(tmp_path: Path) -> None:
    run = fabricated(tmp_path, loss={"activation": "exp"})
    assert make_context(run).concentration(torch.zeros(1, 3)).tolist() == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    ("strategies", "shown"),
    [
        (["entropy", "feal", "random"], "feal"),
        (["logo", "random"], "logo"),
        ([("random", "evidential"), "badge"], "random"),
        ([("feal", "plain"), ("random", "evidential")], "random"),
    ],
)
def test_the_arm_shown_is_trained_for_evidence_where_one_is(
    tmp_path: Path, strategies: list[str | tuple[str, str]], shown: str
) -> None:
    named = [(entry, None) if isinstance(entry, str) else entry for entry in strategies]
    runs = [fabricated(tmp_path / name, strategy=name, loss=loss) for name, loss in named]
    arm = pick_arm(runs)
    assert arm.name == shown
    assert len(arm.runs) == 1


def test_labels_found_are_counted_by_class_up_to_the_round(run: Run) -> None:
    expected = np.zeros((2, 5))
    for site in (run.path / "sites").iterdir():
        for _, asked, _, _, _, label, *_ in labels(site / "site.sqlite"):
            expected[asked - 1 :, label] += 1
    found = count_found_labels(run)
    assert found.tolist() == expected.tolist()
    assert found.sum(axis=1).tolist() == [sum(record.labels.values()) for record in run.rounds]


def test_corrections_count_and_samples_without_a_label_do_not(run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.path, tmp_path / "copy")
    before = count_found_labels(run)
    store = next((copy / "sites").iterdir()) / "site.sqlite"
    with closing(sqlite3.connect(store)) as connection, connection:
        (corrected, old), (declined, other) = connection.execute(
            "SELECT sample, label FROM labels WHERE round = 2 ORDER BY sample LIMIT 2"
        ).fetchall()
        new = (old + 1) % 5
        connection.execute(
            "INSERT INTO superseded SELECT sample, label, mask, height, width, answered, answered_by FROM labels "
            "WHERE sample = ?",
            (corrected,),
        )
        connection.execute("UPDATE labels SET label = ?, corrected = 1 WHERE sample = ?", (new, corrected))
        connection.execute("UPDATE labels SET label = NULL WHERE sample = ?", (declined,))
    change = np.zeros((2, 5))
    change[1, old] -= 1
    change[1, new] += 1
    change[1, other] -= 1
    assert (count_found_labels(open_run(copy)) - before).tolist() == change.tolist()


@pytest.mark.slow
def test_segmentation_counts_pixels(tmp_path: Path) -> None:
    start(tiny_polyps(strategy="random"), out=tmp_path / "run")
    found = count_found_labels(open_run(tmp_path / "run"))
    assert found.sum(axis=1).tolist() == [2 * 3 * 32 * 32, 2 * 6 * 32 * 32]
    assert (found[:, 1] > 0).all()


class Stop(NullCallback):
    """Ends the process's part in a run after its first round."""

    def on_round(self, record: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt


def test_a_run_under_way_counts_its_finished_rounds_and_is_not_changed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        start(tiny(strategy="random"), out=tmp_path / "run", callback=Stop())
    before = fingerprint(tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.status == "unfinished"
    assert [record.round for record in run.rounds] == [1]
    # The labels of the next round are asked for already; this one was not trained on them.
    assert count_found_labels(run).sum() == sum(run.rounds[0].labels.values()) == 10
    assert differences(before, fingerprint(tmp_path / "run")) == []


def test_sites_without_a_test_part_have_no_metrics_but_labels(tmp_path: Path) -> None:
    synthetic = {"sites": 2, "train": 40, "test": 0, "classes": 5}
    run = open_run(start(tiny(strategy="random", dataset=synthetic), out=tmp_path / "run").folder)
    assert np.isnan(run.values()).all()
    assert count_found_labels(run).shape == (2, 5)


def test_a_damaged_database_is_one_sentence(run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.path, tmp_path / "copy")
    next((copy / "sites").iterdir()).joinpath("site.sqlite").write_bytes(b"nonsense" * 999)
    with pytest.raises(FealError, match="copy"):
        count_found_labels(open_run(copy))


@pytest.fixture(scope="module", params=["evidential", "plain"])
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    loss: str = request.param
    return start(tiny(strategy="random", loss=loss), out=tmp_path_factory.mktemp("runs") / loss)


def test_a_run_s_areas_come_from_what_the_sites_kept(judged: Result) -> None:
    before = fingerprint(judged.folder)
    told = read_discrimination(judged.folder)
    assert differences(before, fingerprint(judged.folder)) == []
    assert [entry.round for entry in told] == [1, 2]
    config = read_settings(judged.folder)
    data = open_prepared(locate(config.dataset))
    for entry in told:
        everything = []
        for name in data.sites:
            kept = load_file(
                judged.folder / "sites" / name / "diagnostics" / f"evaluation-{entry.round:03}.safetensors"
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
    judged: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(judged.folder, tmp_path / "copy")
    with closing(sqlite3.connect(copy / "sites" / "birch" / "site.sqlite")) as database, database:
        database.execute("UPDATE site SET data = 'other'")
    with pytest.raises(FealError, match="not the prepared set that .*birch had in the run"):
        read_discrimination(copy)
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "empty"))
    with pytest.raises(FealError, match="is not drawn in"):
        read_discrimination(judged.folder, draw=False)
    assert not (tmp_path / "empty").exists()


def test_what_cannot_be_judged_is_one_sentence(judged: Result, tmp_path: Path) -> None:
    copy = shutil.copytree(judged.folder, tmp_path / "copy")
    file = next(copy.glob("sites/*/diagnostics/evaluation-001.safetensors"))
    save_file({**load_file(file), "rows": torch.arange(3)}, file)
    with pytest.raises(FealError, match="other test samples"):
        read_discrimination(copy)
    for kept in copy.glob("sites/*/diagnostics/evaluation-*.safetensors"):
        kept.unlink()
    with pytest.raises(FealError, match="kept nothing"):
        read_discrimination(copy)
    shutil.rmtree(copy / "sites")
    write_config(RunDirectory(copy), tiny_polyps().dump())
    (copy / "state.json").unlink()
    with pytest.raises(FealError, match="segmentation, which has no ROC curve"):
        read_discrimination(copy)
