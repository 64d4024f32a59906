"""Uniform choice, and the upper bound."""

from pathlib import Path

import pytest
import torch

from feal.config import load, revise
from feal.errors import FealError
from feal.experiment import resume, start
from feal.selection import Columns
from feal.selection.strategies.random import Full, Random
from feal.settings import Task
from feal.testing import StrategyContract
from tests.runs import TINY, events, tiny, tiny_polyps


class TestRandom(StrategyContract):
    strategy = Random
    draws = True

    def test_every_sample_is_equally_likely(self, task: Task) -> None:
        pool = Columns([f"{k}" for k in range(6)], {})
        picks = [self.choose(pool, task, 2, seed=seed).ids for seed in range(1200)]
        counts = torch.bincount(torch.tensor([int(pick) for pair in picks for pick in pair]), minlength=6)
        expected = 2 * 1200 / 6
        # Chi-square with 5 degrees of freedom: 20.5 is its 99.9th percentile; pairs exclude repeats, which only
        # narrows the spread.
        assert float(((counts - expected) ** 2 / expected).sum()) < 20.5

    def test_another_seed_gives_another_choice(self, task: Task) -> None:
        pool = Columns([f"{k:02}" for k in range(30)], {})
        assert self.choose(pool, task, 5, seed=1).ids != self.choose(pool, task, 5, seed=2).ids


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
