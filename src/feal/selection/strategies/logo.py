"""Local diversity, global uncertainty (Kim et al., CVPR 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.clusters import best_of_each, clustered
from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Role, Strategy, chosen, per_image
from feal.selection.scores import entropy
from feal.settings import QueryModel, Selection


@STRATEGIES.register("logo", summary="clusters of the local model, in each the global model's largest entropy")
class Logo(Strategy):
    """k-means on the local model's features times its doubt; of each cluster the global model's largest entropy.

    Embedding (1 - max_c p_c) h of the local model, k = budget, at most 300 iterations, then the largest entropy
    of the global model's p in each cluster. Segmentation (ours): the pixel means of max_c p_c and of the entropy,
    h the pooled bottleneck.
    """

    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local", "local_only"})
    settings: ClassVar[tuple[str, ...]] = ("selection.local",)
    source: ClassVar[str] = "Kim et al., CVPR 2023"

    @classmethod
    def roles_for(cls, *, query_model: QueryModel | None, selection: Selection) -> frozenset[Role]:
        del query_model
        return frozenset({"global", _local_role(selection)})

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        local = models[_local_role(context.selection)](images)
        doubt = 1 - per_image(_probability(local.logits, context).amax(1))
        probability = _probability(models["global"](images).logits, context)
        return {
            "entropy_global": per_image(entropy(probability)),
            "doubt_local": doubt.double(),
            "embedding": doubt.to(local.features)[:, None] * local.features,
        }

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
        labels = clustered(pool["embedding"], budget, generator=generator)
        parts = {"score": pool["entropy_global"], "doubt_local": pool["doubt_local"], "cluster": labels}
        return chosen(pool, best_of_each(labels, pool["entropy_global"], budget), parts)


def _probability(logits: torch.Tensor, context: Context) -> torch.Tensor:
    """Class probabilities; float64 where they are few, so that 1 - max p of a sure model is not 0."""
    return context.probability(logits.double() if logits.dim() == 2 else logits)


def _local_role(selection: Selection) -> Role:
    return "local_only" if selection.local == "local_only" else "local"
