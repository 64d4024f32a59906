"""Uniform choice: the baseline of every comparison, and every run's first labels."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Strategy, chosen
from feal.selection.ranking import best


@STRATEGIES.register("random", summary="uniform, seeded")
class Random(Strategy):
    """Every sample gets a uniform number; the largest are chosen."""

    needs_images: ClassVar[bool] = False
    settings: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = "baseline"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        return {}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        score = torch.rand(len(pool), dtype=torch.float64, generator=generator)
        return chosen(pool, best(score, budget), {"score": score})
