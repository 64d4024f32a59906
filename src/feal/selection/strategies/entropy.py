"""Entropy sampling (Shannon, 1948): what the model is least sure of."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, QueryingStrategy, RankingStrategy, SelectionContext
from feal.selection.scores import entropy, per_image


@STRATEGIES.register("entropy", summary="largest entropy of the class probabilities")
class Entropy(RankingStrategy, QueryingStrategy):
    """H(p), largest first; under `ensemble` the mean of both models' entropies.

    The form for segmentation is ours: the mean over pixels.
    """

    folds_batch_norms = True
    source = "Shannon, Bell System Technical Journal 1948"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {
            f"entropy_{role}": per_image(entropy(context.probability(models[role](images).logits)))
            for role in self.queried_roles()
        }

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        entropies = {f"entropy_{role}": pool[f"entropy_{role}"] for role in self.queried_roles()}
        score = torch.stack(list(entropies.values())).mean(0)
        return {"score": score, **entropies}
