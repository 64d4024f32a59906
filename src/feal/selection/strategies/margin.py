"""Margin sampling (Scheffer et al., IDA 2001): where two classes are almost equally likely."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, QueryingStrategy, RankingStrategy, SelectionContext
from feal.selection.scores import margin_complement, per_image


@STRATEGIES.register("margin", summary="smallest gap between the two most likely classes")
class Margin(RankingStrategy, QueryingStrategy):
    """1 - (p_(1) - p_(2)) of the two largest class probabilities, largest first; `ensemble`: the mean of both.

    The form for segmentation is ours: the mean over pixels.
    """

    folds_batch_norms = True
    source = "Scheffer et al., IDA 2001"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {
            f"margin_{role}": observe_margin(models[role](images).logits, context) for role in self.queried_roles()
        }

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        margins = {f"margin_{role}": pool[f"margin_{role}"] for role in self.queried_roles()}
        return {"score": torch.stack(list(margins.values())).mean(0), **margins}


def observe_margin(logits: Tensor, context: SelectionContext) -> Tensor:
    """Return 1 - (p_(1) - p_(2)) of each image, float64 [batch]: the pixel mean for segmentation."""
    return per_image(margin_complement(precise_probability(logits, context)))


def precise_probability(logits: Tensor, context: SelectionContext) -> Tensor:
    """Return class probabilities; float64 where they are few, so that 1 - p of a sure model is not 0."""
    return context.probability(logits.double() if logits.dim() == 2 else logits)
