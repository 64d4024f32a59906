"""Entropy sampling (Shannon, 1948): what the model is least sure of."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    QueryingStrategy,
    Selection,
    SelectionContext,
    make_selection,
    per_image,
    top_k,
)
from feal.selection.scores import entropy


@STRATEGIES.register("entropy", summary="largest entropy of the class probabilities")
class Entropy(QueryingStrategy):
    """H(p), largest first; under `ensemble` the mean of both models' entropies.

    The form for segmentation is ours: the mean over pixels.
    """

    source: ClassVar[str] = "Shannon, Bell System Technical Journal 1948"

    def observe(self, images: torch.Tensor, models: Models, context: SelectionContext) -> dict[str, torch.Tensor]:
        return {
            f"entropy_{role}": per_image(entropy(context.probability(models[role](images).logits)))
            for role in self.queried_roles()
        }

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: SelectionContext,
        budget: int,
        generator: torch.Generator,
    ) -> Selection:
        entropies = {f"entropy_{role}": pool[f"entropy_{role}"] for role in self.queried_roles()}
        score = torch.stack(list(entropies.values())).mean(0)
        return make_selection(pool, top_k(score, budget), {"score": score, **entropies})
