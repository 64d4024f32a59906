"""Everything labelled: the upper bound that the others are measured against."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Strategy, chosen


@STRATEGIES.register("full", summary="everything labelled, in one round without a cap: the upper bound")
class Full(Strategy):
    """No choice at all: a run asks for the label of every sample at its beginning and ends after one round."""

    everything: ClassVar[bool] = True
    needs_images: ClassVar[bool] = False
    source: ClassVar[str] = "upper bound"

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
        return chosen(pool, torch.arange(min(budget, len(pool))), {"score": torch.zeros(len(pool)).double()})
