import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import feal
from feal.experiment import Result, resume, start
from tests.rebuilding import rebuilt_sites
from tests.runs import differences, fingerprint, labels, tiny, tiny_polyps


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A finished tiny run."""
    return start(tiny(), out=tmp_path_factory.mktemp("runs") / "whole")


def test_a_run_directory_is_complete(whole: Result) -> None:
    folder = whole.folder
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["loss"]["name"] == "evidential"
    assert settings["strategy"]["tau"] == 0.85
    names = {path.name for path in (folder / "weights").iterdir()}
    assert names == {"initial.safetensors", "round-001.safetensors", "round-002.safetensors"}
    for site in (folder / "sites").iterdir():
        assert (site / "site.sqlite").exists()
        assert {path.name.split("-")[0] for path in (site / "models").iterdir()} == {"local"}
        assert sorted(path.name for path in (site / "selections").iterdir()) == ["round-001.csv", "round-002.csv"]
        kept = load_file(site / "diagnostics" / "round-001.safetensors")
        assert kept["logits_global"].shape == kept["logits_local"].shape == (len(kept["rows"]), 5)
        tested = load_file(site / "diagnostics" / "evaluation-002.safetensors")
        assert tested["logits"].shape == (len(tested["rows"]), 5) == (16, 5)


def test_the_summary_has_its_lasting_form(whole: Result) -> None:
    summary = json.loads((whole.folder / "summary.json").read_text())
    assert (summary["status"], summary["seed"], summary["strategy"]) == ("finished", 0, "feal")
    assert summary["task"] == "classification"
    assert [record["round"] for record in summary["rounds"]] == [1, 2]
    for number, record in enumerate(summary["rounds"], start=1):
        sites = set(record["labels"])
        assert set(record["labels"].values()) == {5 * number}
        figures = record["metrics"]["balanced_accuracy"]
        assert figures["mean"] == pytest.approx(sum(figures["sites"].values()) / len(sites))
        assert 0 <= figures["pooled"] <= 1
        assert set(figures["sites"]) == sites
        assert {"aleatoric", "epistemic", "zero_evidence", "class_evidence", "recall"} <= set(
            record["diagnostics"]
        )
        assert {"train", "evaluate"} <= set(record["seconds"])
        assert ("select" in record["seconds"]) == (number == 1)


def test_selections_say_what_was_chosen_and_why(whole: Result) -> None:
    for site in (whole.folder / "sites").iterdir():
        lines = (site / "selections" / "round-002.csv").read_text().splitlines()
        assert lines[0] == "sample,rank,score,aleatoric_global,aleatoric_local,epistemic_global"
        assert [line.split(",")[1] for line in lines[1:]] == ["1", "2", "3", "4", "5"]
        stored = {row[0]: row for row in labels(site / "site.sqlite") if row[1] == 2}
        assert set(stored) == {line.split(",")[0] for line in lines[1:]}
        for line in lines[1:]:
            sample, rank, score, *_ = line.split(",")
            assert stored[sample][2:4] == (int(rank), float(score))


def test_nothing_is_asked_for_twice_and_everything_is_answered(whole: Result) -> None:
    for site in (whole.folder / "sites").iterdir():
        rows = labels(site / "site.sqlite")
        assert len(rows) == 10
        assert all(row[5] is not None and row[7] == "oracle" for row in rows)


def test_the_same_run_twice_is_the_same_bits(whole: Result, tmp_path: Path) -> None:
    again = start(tiny(), out=tmp_path / "again")
    assert differences(fingerprint(whole.folder), fingerprint(again.folder)) == []


def test_rebuilt_sites_give_the_same_bits(whole: Result, tmp_path: Path) -> None:
    with rebuilt_sites():
        rebuilt = start(tiny(), out=tmp_path / "rebuilt")
    assert differences(fingerprint(whole.folder), fingerprint(rebuilt.folder)) == []


def test_torch_threads_and_random_state_of_the_caller_do_not_matter(whole: Result, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(99)
    try:
        again = start(tiny(), out=tmp_path / "again")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert differences(fingerprint(whole.folder), fingerprint(again.folder)) == []


def test_another_seed_gives_other_bits(whole: Result, tmp_path: Path) -> None:
    other = fingerprint(start(tiny(seed=1), out=tmp_path / "other").folder)
    changed = differences(fingerprint(whole.folder), other)
    assert {"weights/initial.safetensors", "weights/round-001.safetensors", "summary"} <= set(changed)
    assert any(name.endswith("round-001.csv") for name in changed)


def test_strategies_share_their_first_labels_and_weights(whole: Result, tmp_path: Path) -> None:
    other = fingerprint(start(tiny(strategy="random"), out=tmp_path / "random").folder)
    one = fingerprint(whole.folder)
    paired = [name for name in one if name.endswith("round-001.csv") or name == "weights/initial.safetensors"]
    assert len(paired) == 3
    assert all(one[name] == other[name] for name in paired)


def test_an_extended_run_equals_one_planned_so(whole: Result, tmp_path: Path) -> None:
    short = start(tiny(rounds=1), out=tmp_path / "short")
    extended = feal.resume(short.folder, rounds=2)
    assert [record.round for record in extended.rounds] == [1, 2]
    assert differences(fingerprint(whole.folder), fingerprint(extended.folder)) == []


def test_resuming_a_finished_run_changes_nothing(whole: Result) -> None:
    before = fingerprint(whole.folder)
    assert resume(whole.folder).status == "finished"
    assert differences(before, fingerprint(whole.folder)) == []


@pytest.mark.slow
def test_segmentation_runs_and_keeps_maps_of_the_chosen(tmp_path: Path) -> None:
    result = start(tiny_polyps(), out=tmp_path / "polyps")
    assert result.task == "segmentation"
    assert 0 <= result.rounds[-1].metrics["dice"].mean <= 1
    for site in (result.folder / "sites").iterdir():
        kept = load_file(site / "diagnostics" / "round-001.safetensors")
        assert kept["map_aleatoric_global"].shape == (3, 32, 32)
        assert len(kept["epistemic_global"]) == len(kept["rows"])
        assert not (site / "diagnostics" / "round-002.safetensors").exists()
    with rebuilt_sites():
        rebuilt = start(tiny_polyps(), out=tmp_path / "rebuilt")
    assert differences(fingerprint(result.folder), fingerprint(rebuilt.folder)) == []


@pytest.mark.parametrize("loss", ["plain", "balanced"])
@pytest.mark.parametrize("settings", [tiny, tiny_polyps])
def test_other_losses_train_too(settings: object, loss: str, tmp_path: Path) -> None:
    result = start(settings(loss=loss, rounds=1, strategy="random"), out=tmp_path / "run")
    assert result.status == "finished"


def test_restart_false_goes_on_from_the_last_round(whole: Result, tmp_path: Path) -> None:
    warm = fingerprint(start(tiny(restart=False), out=tmp_path / "warm").folder)
    cold = fingerprint(whole.folder)
    assert warm["weights/round-001.safetensors"] == cold["weights/round-001.safetensors"]
    assert warm["weights/round-002.safetensors"] != cold["weights/round-002.safetensors"]


def test_partial_participation_still_brings_every_local_model_up_to_date(tmp_path: Path) -> None:
    settings = tiny(participation=0.5, communication_rounds=3, rounds=1)
    result = start(settings, out=tmp_path / "half")
    steps = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    trained = [sorted(event["loss"]) for event in steps if event["event"] == "step"]
    assert [len(sites) for sites in trained] == [1, 1, 2]
    selection = result.rounds[0].diagnostics.selection
    assert {site.local_model for site in selection.values()} == {"own"}


def test_figures_inside_a_round_come_when_asked_for(tmp_path: Path) -> None:
    settings = tiny(evaluate_every=2, communication_rounds=5, rounds=1)
    result = start(settings, out=tmp_path / "run")
    events = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if "metrics" in event and event["event"] == "step"] == [2, 4]


def test_a_share_as_budget_and_the_cap(tmp_path: Path) -> None:
    result = start(tiny(budget=0.3, max_labelled_fraction=0.5), out=tmp_path / "run")
    pools = {site: len(load_pool(result.folder / "sites" / site)) for site in result.rounds[0].labels}
    for site, labelled in result.rounds[0].labels.items():
        total = pools[site] + labelled
        assert labelled == int(0.3 * total + 1e-9)
        assert result.rounds[1].labels[site] == -(-total // 2)


def load_pool(site: Path) -> torch.Tensor:
    """Rows that were still unlabelled after round 1."""
    return load_file(site / "diagnostics" / "round-001.safetensors")["rows"]


def test_given_labels_are_the_first(tmp_path: Path) -> None:
    synthetic = {"sites": 2, "train": 40, "test": 8, "classes": 5, "labelled_fraction": 0.2}
    result = start(tiny(initial_labels="dataset", dataset=synthetic, rounds=1), out=tmp_path / "run")
    for site in (result.folder / "sites").iterdir():
        rows = labels(site / "site.sqlite")
        assert rows
        assert {row[7] for row in rows} == {"given"}


def test_given_labels_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(feal.FealError, match="No site has a label to start with"):
        start(tiny(initial_labels="dataset"), out=tmp_path / "run")


def test_a_site_without_a_test_part_has_no_figure(tmp_path: Path) -> None:
    synthetic = {"sites": 2, "train": 40, "test": 0, "classes": 5}
    result = start(tiny(dataset=synthetic, rounds=1), out=tmp_path / "run")
    figures = result.rounds[0].metrics["balanced_accuracy"]
    assert figures.mean is None
    assert set(figures.sites.values()) == {None}


def test_class_counts_can_stay_at_home(tmp_path: Path) -> None:
    result = start(tiny(share_class_counts=False, rounds=1), out=tmp_path / "run")
    state = json.loads((result.folder / "state.json").read_text())
    assert set(state["class_counts"].values()) == {None}


def test_the_state_says_what_the_images_are(whole: Result) -> None:
    facts = json.loads((whole.folder / "state.json").read_text())["facts"]
    assert len(facts.pop("classes")) == 5
    assert facts == {"channels": 3, "height": 32, "width": 32, "dtype": "uint8", "fitting": None}


def test_without_diagnostics_nothing_is_kept_of_the_samples(tmp_path: Path) -> None:
    result = start(tiny(diagnostics=False, rounds=1), out=tmp_path / "run")
    assert not list(result.folder.rglob("diagnostics"))


def test_candidates_limit_what_is_looked_at(tmp_path: Path) -> None:
    result = start(tiny(selection={"candidates": 9}), out=tmp_path / "run")
    for site in (result.folder / "sites").iterdir():
        assert len(load_pool(site)) == 9


def test_from_python(tmp_path: Path) -> None:
    result = feal.run("demo", strategy="random", seed=1, out=tmp_path / "run", **tiny_overrides())
    assert result.status == "finished"
    assert feal.resume(result.folder, rounds=2).rounds[-1].round == 2


def tiny_overrides() -> dict[str, object]:
    """One short round."""
    from tests.runs import TINY

    return {**TINY, "rounds": 1}


def test_a_resume_that_is_refused_changes_no_setting(tmp_path: Path) -> None:
    run = start(tiny(rounds=1), out=tmp_path / "run").folder
    before = (run / "config.yaml").read_text()
    with pytest.raises(feal.FealError, match="quorum of 9"):
        feal.resume(run, quorum=9, rounds=2)
    assert (run / "config.yaml").read_text() == before
    assert feal.resume(run, rounds=2).rounds[-1].round == 2
    assert resume(run, settings=tiny(rounds=3)).rounds[-1].round == 3
