"""The validation fold: by patient, the same in every run, and nothing of the test part in it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from feal.analysis.outputs import read_discrimination
from feal.data import locate, open_labels, open_prepared
from feal.data.samples import SampleTable
from feal.errors import FealError
from feal.experiment import start
from feal.metrics import roc_auc
from tests.command import Command
from tests.runs import labels, tiny


def _table(patients: list[int], tested: int) -> SampleTable:
    count = len(patients) + tested
    columns = {
        "id": np.array([f"{number:04}".encode() for number in range(count)]),
        "patient": np.array([b"p%d" % patient for patient in patients] + [b"t"] * tested),
        "split": np.array([b"train"] * len(patients) + [b"test"] * tested),
    }
    return SampleTable("alder", columns)


@given(
    patients=st.lists(st.integers(0, 8), min_size=1, max_size=60),
    tested=st.integers(0, 5),
    share=st.floats(0.01, 0.99),
)
def test_a_fold_is_made_of_whole_patients(patients: list[int], tested: int, share: float) -> None:
    table = _table(patients, tested)
    try:
        fold = table.hold_out_validation(share)
    except FealError:
        largest = max(patients.count(patient) for patient in patients)
        assert len(set(patients)) == 1 or (1 - share) * len(patients) <= largest
        return
    trained = set(fold.patients("train"))
    judged = set(fold.patients("test"))
    assert trained
    assert not trained & judged
    assert trained | judged == {f"p{patient}" for patient in patients}
    held = len(fold.ids("test"))
    largest = max(patients.count(patient) for patient in patients)
    assert share * len(patients) <= held < share * len(patients) + largest
    assert len(fold.ids()) == len(patients) + tested


def test_the_fold_follows_the_patients_and_not_their_order() -> None:
    one, other = _table([1, 2, 3, 4, 5, 6], 0), _table([6, 5, 4, 3, 2, 1], 0)
    chosen = [set(table.hold_out_validation(0.4).patients("test")) for table in (one, other)]
    assert chosen[0] == chosen[1]


def test_unlabelled_samples_are_not_held_out() -> None:
    table = _table([1, 2, 3, 4, 5, 6, 7, 8], 0)
    table.columns["given"] = np.array([True, False] * 4)
    whole, fold = table.hold_out_validation(0.5), table.hold_out_validation(0.5, labelled_only=True)
    labelled = {name for name, given in zip(table.ids(), table.columns["given"], strict=True) if given}
    assert set(fold.ids("test")) == set(whole.ids("test")) & labelled
    assert set(fold.ids("train")) == set(whole.ids("train"))


def test_one_patient_cannot_be_on_both_sides() -> None:
    with pytest.raises(FealError, match="leaves site 'alder' no patient to train on"):
        _table([1, 1, 1], 2).hold_out_validation(0.5)


def test_a_run_is_judged_by_the_fold_and_asks_outside_it(tmp_path: Path) -> None:
    settings = tiny(validation=0.3, max_labelled_fraction=1.0, budget=0.5)
    run = start(settings, out=tmp_path / "run").folder
    data = open_prepared(locate(settings.dataset))
    for name in data.sites:
        whole, fold = data.site(name), data.site(name, validation=0.3)
        held = set(fold.ids("test"))
        assert held
        assert held | set(fold.ids("train")) == set(whole.ids("train"))
        asked = {row[0] for row in labels(run / "sites" / name / "site.sqlite")}
        assert asked == set(fold.ids("train"))
        kept = load_file(run / "sites" / name / "diagnostics" / "evaluation-001.safetensors")
        assert {whole.id_at(int(row)) for row in kept["rows"]} == held


def test_the_figures_of_a_fold_are_never_called_those_of_the_test_part(tmp_path: Path, command: Command) -> None:
    run = start(tiny(validation=0.3, rounds=1), out=tmp_path / "run").folder
    message = "Evaluated on a validation split (30% of the training data)"
    assert message in " ".join(command("show", run).out.split())
    assert command("export", run, "--format", "none", "--out", tmp_path / "exported").code == 0
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "on a validation split of 30 % of every site's training images, **not on test images**" in card
    assert "own test part" not in card
    [found] = read_discrimination(run)
    data = open_prepared(locate(tiny().dataset))
    fold = data.site("alder", validation=0.3)
    logits = load_file(run / "sites" / "alder" / "diagnostics" / "evaluation-001.safetensors")["logits"]
    alpha = logits.clamp(min=0) + 1
    scores = (alpha / alpha.sum(1, keepdim=True)).double().numpy()
    assert found.sites["alder"] == pytest.approx(roc_auc(scores, open_labels(fold).of(fold.ids("test")).numpy()))


def test_some_of_the_sites_can_take_part(tmp_path: Path) -> None:
    run = start(tiny(sites=["birch"]), out=tmp_path / "run").folder
    assert [path.name for path in (run / "sites").iterdir()] == ["birch"]


def test_an_absent_site_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FealError, match=r"has no site brich, only .*: prepare .*, or continue without by 'sites=\["
    ):
        start(tiny(sites=["brich"]), out=tmp_path / "run")
