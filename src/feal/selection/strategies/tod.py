"""Temporal output discrepancy (Huang et al., ICCV 2021): what the model has changed its mind about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch

from feal.selection.contract import (
    STRATEGIES,
    Choice,
    Columns,
    Context,
    Models,
    QueryingStrategy,
    Role,
    chosen,
    per_image,
)
from feal.selection.ranking import best
from feal.selection.scores import half_squared_distance
from feal.settings import QueryModel, Selection

COMPARED: Mapping[QueryModel, tuple[Role, Role]] = {
    "global": ("global", "global_previous"),
    "local": ("local", "local_previous"),
    "ensemble": ("finetuned", "local_previous"),
}
"""The model now and the one before, for each `query_model`."""


@STRATEGIES.register("tod", summary="largest change of the class probabilities since the previous round")
class Tod(QueryingStrategy):
    """1/2 ||p_now - p_before||^2, largest first.

    `before` is the same model at the end of the previous active-learning round. Under `ensemble` the global
    model, fine-tuned on the site's labels, is held against the previous local model. The form for segmentation
    is ours: the mean over pixels.
    """

    roles: ClassVar[frozenset[Role]] = frozenset(role for pair in COMPARED.values() for role in pair)
    settings: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = "Huang et al., ICCV 2021"

    @classmethod
    def roles_for(cls, *, query_model: QueryModel | None, selection: Selection) -> frozenset[Role]:
        del selection
        return frozenset(COMPARED[query_model or cls.query_models[0]])

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        now, before = (
            context.probability(models[role](images).logits)
            for role in COMPARED[context.query_model or self.query_models[0]]
        )
        return {"discrepancy": per_image(half_squared_distance(now, before))}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        score = pool["discrepancy"]
        return chosen(pool, best(score, budget), {"score": score})
