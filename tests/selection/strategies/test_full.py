"""The upper bound."""

from pathlib import Path

import pytest

from feal.config import load, revise
from feal.errors import FealError
from feal.experiment import resume, start
from feal.selection.strategies.full import Full
from feal.testing import StrategyContract
from tests.runs import TINY, events, tiny, tiny_polyps


class TestFull(StrategyContract):
    strategy = Full
    runs = False
    draws = True


@pytest.mark.parametrize("settings", [tiny(strategy="full"), tiny_polyps(strategy="full")])
def test_everything_is_labelled_in_one_round(settings, tmp_path: Path) -> None:
    result = start(settings, out=tmp_path / "run")
    [record] = result.rounds
    joined = {
        site.name: len((site / "selections/round-001.csv").read_text().splitlines()) - 1
        for site in (result.folder / "sites").iterdir()
    }
    assert record.labels == joined
    assert max(joined.values()) == settings.dataset.params["train"]
    assert not events(result.folder, "left_out")


def test_a_preset_of_many_rounds_and_a_cap_becomes_one() -> None:
    several = {"max_labelled_fraction": 0.5, "rounds": 5, "initial_labels": "dataset"}
    settings = load("demo", {**TINY, "strategy": "full", **several})
    assert (settings.rounds, settings.budget, settings.initial_labels) == (1, "all", "random")
    assert settings.max_labelled_fraction == 1.0


def test_it_has_no_second_round(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="A run of strategy full has one round"):
        revise(tiny(strategy="full"), {"rounds": 2})
    result = start(tiny(strategy="full"), out=tmp_path / "run")
    assert resume(result.folder) == result
