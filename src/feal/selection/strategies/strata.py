"""Rare and different: our own strategy for unbalanced classes."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.clusters import best_of_each, clustered
from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Role, Strategy, chosen
from feal.settings import Loss

ITERATIONS = 10


@STRATEGIES.register("strata", summary="clusters of deep features, in each the label expected to be rarest")
class Strata(Strategy):
    """k-means on the local model's deep features, k = budget; from each cluster the label expected to be rarest.

    Expected rarity a = sum_c p_c / (n_c + 1), with p the mean of both models' probabilities and n_c the labelled
    samples of all sites. Segmentation: p the pixel mean, n_c the share of class c among the labelled pixels.
    """

    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local"})
    default_loss: ClassVar[Loss] = "balanced"
    settings: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = "this project"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        local = models["local"](images)
        both = _class_shares(models["global"](images).logits, context) + _class_shares(local.logits, context)
        weight = _rarity(context).to(both.device)
        return {"rarity": (both / 2 * weight).sum(1), "deep": local.deep}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        if len(pool) == 0 or budget == 0:
            return Choice(ids=[], parts={"score": torch.empty(0)})
        labels = clustered(pool["deep"], budget, generator=generator, iterations=ITERATIONS)
        parts = {"score": pool["rarity"], "cluster": labels}
        return chosen(pool, best_of_each(labels, pool["rarity"], budget), parts)


def _class_shares(logits: torch.Tensor, context: Context) -> torch.Tensor:
    """Probability of each class, float64 [batch, classes]: the mean over pixels for segmentation."""
    probability = context.probability(logits)
    return (probability.flatten(2).mean(2) if probability.dim() > 2 else probability).double()


def _rarity(context: Context) -> torch.Tensor:
    """1 / (n_c + 1), float64 [classes]."""
    counts = context.total_counts.double()
    if context.task == "segmentation":
        counts = counts / counts.sum().clamp(min=1)
    return 1 / (counts + 1)
