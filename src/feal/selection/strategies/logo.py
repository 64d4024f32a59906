"""Local diversity, global uncertainty (Kim et al., CVPR 2023)."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    Role,
    Selection,
    SelectionContext,
    Strategy,
    make_selection,
)
from feal.selection.kmeans import k_means, pick_best_of_each
from feal.selection.scores import entropy, per_image


@STRATEGIES.register("logo", summary="clusters of the local model, in each the global model's largest entropy")
class Logo(Strategy):
    """k-means on the local model's features times its doubt; of each cluster the global model's largest entropy.

    Embedding (1 - max_c p_c) h of the local model, k = budget, at most 300 iterations, then the largest entropy
    of the global model's p in each cluster. Under `local_only` the local model is the one of LoGo's public code:
    trained from the initial weights on this site's labels until 99 % of them are predicted, or for 50 epochs.
    Segmentation (ours): the pixel means of max_c p_c and of the entropy, h the pooled bottleneck.
    """

    roles = frozenset({"global", "local", "local_only"})
    folds_batch_norms = True
    source = "Kim et al., CVPR 2023"

    class Params(Strategy.Params):
        """Which local model clusters the pool."""

        local: Literal["federated", "local_only"] = Field(
            "federated",
            description="the local model: that of the last round, or one trained on this site alone as in LoGo's "
            "code, from the initial weights until 99 % accuracy or for 50 epochs",
        )

    params: Params

    def required_roles(self) -> frozenset[Role]:
        return frozenset({"global", self._local_role()})

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        local = models[self._local_role()](images)
        doubt = 1 - per_image(_probability(local.logits, context).amax(1))
        probability = _probability(models["global"](images).logits, context)
        return {
            "entropy_global": per_image(entropy(probability)),
            "doubt_local": doubt.double(),
            "embedding": doubt.to(local.features)[:, None] * local.features,
        }

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0 or budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        labels = k_means(pool["embedding"], budget, generator=generator)
        parts = {"score": pool["entropy_global"], "doubt_local": pool["doubt_local"], "cluster": labels}
        return make_selection(pool, pick_best_of_each(labels, pool["entropy_global"], budget), parts)

    def _local_role(self) -> Role:
        return "local_only" if self.params.local == "local_only" else "local"


def _probability(logits: Tensor, context: SelectionContext) -> Tensor:
    """Class probabilities; float64 where they are few, so that 1 - max p of a sure model is not 0."""
    return context.probability(logits.double() if logits.dim() == 2 else logits)
