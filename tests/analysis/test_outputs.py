from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from feal.analysis.outputs import make_context, read_energies, read_pool, read_pool_logits, read_selected_logits
from feal.analysis.runs import Run, open_run, pick_arm
from feal.data import locate, open_prepared
from feal.errors import FealError
from feal.experiment import start
from tests.analysis.fabricated import fabricated, keep
from tests.runs import tiny


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


def test_a_part_of_the_pool_or_the_last_round_does_not_tell_what_was_chosen(tmp_path: Path) -> None:
    whole = fabricated(tmp_path)
    part = fabricated(tmp_path, selection={"candidates": 3})
    keep(whole, "alder", "round-001", rows=[4, 6, 9], logits_global=np.eye(3, dtype=np.float32))
    assert len(read_selected_logits(whole, 1)) == 0
    keep(whole, "alder", "round-002", rows=[6])
    assert read_selected_logits(whole, 1).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert len(read_selected_logits(part, 1)) == 0


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
    name, members = pick_arm(runs)
    assert name == shown
    assert len(members) == 1
