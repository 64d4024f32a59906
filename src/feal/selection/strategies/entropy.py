"""Entropy sampling (Shannon, 1948): what the model is least sure of."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.contract import (
    STRATEGIES,
    Choice,
    Columns,
    Context,
    Models,
    QueryingStrategy,
    chosen,
    per_image,
)
from feal.selection.ranking import best
from feal.selection.scores import entropy


@STRATEGIES.register("entropy", summary="largest entropy of the class probabilities")
class Entropy(QueryingStrategy):
    """H(p), largest first; under `ensemble` the mean of both models' entropies.

    The form for segmentation is ours: the mean over pixels.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = "Shannon, Bell System Technical Journal 1948"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        return {
            f"entropy_{role}": per_image(entropy(context.probability(models[role](images).logits)))
            for role in self.asked_roles(context)
        }

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        entropies = {f"entropy_{role}": pool[f"entropy_{role}"] for role in self.asked_roles(context)}
        score = torch.stack(list(entropies.values())).mean(0)
        return chosen(pool, best(score, budget), {"score": score, **entropies})
