"""Rare and different: our own strategy for unbalanced classes."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, make_selection
from feal.selection.kmeans import k_means, pick_best_of_each
from feal.selection.scores import margin_complement, per_image
from feal.selection.strategies.margin import precise_probability

ITERATIONS = 10


@STRATEGIES.register("strata", summary="clusters of deep features, in each the rarest and least certain label")
class Strata(Strategy):
    """k-means on the local model's deep features; from each cluster the largest a u, of these the largest.

    Expected rarity a = sum_c p_c / (n_c + 1), with p the mean of both models' probabilities and n_c the labelled
    samples of all sites; u = 1 - (p_(1) - p_(2)), the closeness of the two most likely classes. There are k times
    the budget clusters; with fewer than the budget, the second best of each follow, and so on. Segmentation: a of
    the pixel mean of p, with n_c the share of class c among the labelled pixels; u the pixel mean.
    """

    roles = frozenset({"global", "local"})
    default_loss = "balanced"
    folds_batch_norms = True
    source = "this project"

    class Params(Strategy.Params):
        """What is looked for, and in how many clusters."""

        k: float = Field(
            1, ge=1, description="clusters, times the budget; of their best samples the best are taken"
        )
        score: Literal["rarity-margin", "rarity", "margin"] = Field(
            "rarity-margin",
            description="what ranks: expected rarity of the label, closeness of the two most likely classes, "
            "or the product of both",
        )

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        probability = _mean_probability(images, models, context)
        return {
            "rarity": rarity_of(_shares(probability), context),
            "margin": per_image(margin_complement(probability)),
            "deep": models["local"](images).deep,
        }

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0 or budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        rarity, margin = pool["rarity"], pool["margin"]
        score = {"rarity-margin": rarity * margin, "rarity": rarity, "margin": margin}[self.params.score]
        clusters = round(self.params.k * budget)
        labels = k_means(pool["deep"], clusters, generator=generator, iterations=ITERATIONS)
        parts = {"score": score, "rarity": rarity, "margin": margin, "cluster": labels}
        return make_selection(pool, pick_best_of_each(labels, score, budget), parts)


def observe_shares(images: Tensor, models: Models, context: SelectionContext) -> Tensor:
    """Return the mean of both models' class probabilities, float64 [batch, classes]: the pixel mean of masks."""
    return _shares(_mean_probability(images, models, context))


def rarity_of(shares: Tensor, context: SelectionContext) -> Tensor:
    """Return sum_c p_c / (n_c + 1) of class probabilities [batch, classes], float64 [batch]."""
    counts = context.total_counts.double().to(shares.device)
    if context.task == "segmentation":
        counts = counts / counts.sum().clamp(min=1)
    return (shares / (counts + 1)).sum(1)


def _mean_probability(images: Tensor, models: Models, context: SelectionContext) -> Tensor:
    ours, own = (precise_probability(models[role](images).logits, context) for role in ("global", "local"))
    return (ours + own) / 2


def _shares(probability: Tensor) -> Tensor:
    return (probability.flatten(2).mean(2) if probability.dim() > 2 else probability).double()
