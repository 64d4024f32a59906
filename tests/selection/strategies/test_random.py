"""Uniform choice."""

import torch

from feal.selection import Columns
from feal.selection.strategies.random import Random
from feal.settings import Task
from feal.testing import StrategyContract


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
