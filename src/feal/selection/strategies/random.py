"""Uniform choice: the baseline of every comparison, and every run's first labels."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    Selection,
    SelectionContext,
    Strategy,
    make_selection,
    top_k,
)


@STRATEGIES.register("random", summary="uniform, seeded")
class Random(Strategy):
    """Every sample gets a uniform number; the largest are chosen."""

    needs_images: ClassVar[bool] = False
    source: ClassVar[str] = "baseline"

    def observe(self, images: torch.Tensor, models: Models, context: SelectionContext) -> dict[str, torch.Tensor]:
        return {}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: SelectionContext,
        budget: int,
        generator: torch.Generator,
    ) -> Selection:
        score = torch.rand(len(pool), dtype=torch.float64, generator=generator)
        return make_selection(pool, top_k(score, budget), {"score": score})
