"""Core-set (Sener and Savarese, ICLR 2018): samples that cover what the labelled ones leave uncovered."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, QueryingStrategy, Selection, SelectionContext
from feal.selection.kcenter import k_center


@STRATEGIES.register("coreset", summary="k-centre greedy on features: the farthest from all labelled samples")
class Coreset(QueryingStrategy):
    """Always the sample whose features are farthest from the nearest labelled or chosen one (Euclidean).

    The ensemble takes the mean of both models' features; segmentation (a form of ours) the pooled bottleneck.
    `score` is the distance at the moment of the pick; 0 if there was nothing yet to be far from.
    """

    needs_labelled = True
    folds_batch_norms = True
    source = "Sener and Savarese, ICLR 2018"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        features = [models[role](images).features for role in self.queried_roles()]
        return {"features": torch.stack(features).mean(0)}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        features = pool["features"]
        known = labelled["features"] if labelled else features[:0]
        rows, distances = k_center(features, known, budget)
        score = distances.masked_fill(distances.isinf(), 0)
        return Selection(ids=[pool.ids[row] for row in rows.tolist()], parts={"score": score})
