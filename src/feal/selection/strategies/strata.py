"""Rare and different: our own strategy for unbalanced classes."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, make_selection
from feal.selection.kmeans import k_means, pick_best_of_each

ITERATIONS = 10


@STRATEGIES.register("strata", summary="clusters of deep features, in each the label expected to be rarest")
class Strata(Strategy):
    """k-means on the local model's deep features, k = budget; from each cluster the label expected to be rarest.

    Expected rarity a = sum_c p_c / (n_c + 1), with p the mean of both models' probabilities and n_c the labelled
    samples of all sites. Segmentation: p the pixel mean, n_c the share of class c among the labelled pixels.
    """

    roles = frozenset({"global", "local"})
    default_loss = "balanced"
    folds_batch_norms = True
    source = "this project"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        local = models["local"](images)
        both = _class_shares(models["global"](images).logits, context) + _class_shares(local.logits, context)
        weight = _rarity(context).to(both.device)
        return {"rarity": (both / 2 * weight).sum(1), "deep": local.deep}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0 or budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        labels = k_means(pool["deep"], budget, generator=generator, iterations=ITERATIONS)
        parts = {"score": pool["rarity"], "cluster": labels}
        return make_selection(pool, pick_best_of_each(labels, pool["rarity"], budget), parts)


def _class_shares(logits: Tensor, context: SelectionContext) -> Tensor:
    """Probability of each class, float64 [batch, classes]: the mean over pixels for segmentation."""
    probability = context.probability(logits)
    return (probability.flatten(2).mean(2) if probability.dim() > 2 else probability).double()


def _rarity(context: SelectionContext) -> Tensor:
    """1 / (n_c + 1), float64 [classes]."""
    counts = context.total_counts.double()
    if context.task == "segmentation":
        counts = counts / counts.sum().clamp(min=1)
    return 1 / (counts + 1)
