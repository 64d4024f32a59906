"""Core-set (Sener and Savarese, ICLR 2018): samples that cover what the labelled ones leave uncovered."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, QueryingStrategy
from feal.selection.kcentre import k_centre_greedy


@STRATEGIES.register("coreset", summary="k-centre greedy on features: the farthest from all labelled samples")
class Coreset(QueryingStrategy):
    """Always the sample whose features are farthest from the nearest labelled or chosen one (Euclidean).

    The ensemble takes the mean of both models' features; segmentation (a form of ours) the pooled bottleneck.
    `score` is the distance at the moment of the pick; 0 if there was nothing yet to be far from.
    """

    needs_labelled: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = "Sener and Savarese, ICLR 2018"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        features = [models[role](images).features for role in self.asked_roles(context)]
        return {"features": torch.stack(features).mean(0)}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        if len(pool) == 0:
            return Choice(ids=[])
        features = pool["features"]
        known = labelled["features"] if labelled else features[:0]
        rows, distances = k_centre_greedy(features, known, budget)
        score = distances.masked_fill(distances.isinf(), 0)
        return Choice(ids=[pool.ids[row] for row in rows.tolist()], parts={"score": score})
