"""Uniform choice: the baseline of every comparison, and every run's first labels; and its upper bound."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, RankingStrategy, SelectionContext


@STRATEGIES.register("random", summary="uniform, seeded")
class Random(RankingStrategy):
    """Every sample gets a uniform number; the largest are chosen."""

    needs_images = False
    source = "baseline"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {}

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        return {"score": torch.rand(len(pool), dtype=torch.float64, generator=generator)}


@STRATEGIES.register("full", summary="everything labelled, in one round without a cap: the upper bound")
class Full(Random):
    """A run asks for the label of every sample at its beginning and ends after one round; nothing is chosen."""

    is_full_supervision = True
    source = "upper bound"
