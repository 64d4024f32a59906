"""Random choice that prefers images with much foreground: the control of every strategy for segmentation."""

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    Selection,
    SelectionContext,
    Strategy,
    make_selection,
    top_k,
)
from feal.selection.scores import per_image


@STRATEGIES.register(
    "random-foreground", summary="uniform, two thirds among images with much predicted foreground"
)
class RandomForeground(Strategy):
    """The share `foreground` of the budget uniform among images with much foreground, the rest among all others.

    Foreground is the share of pixels for which the global model predicts another class than 0; much is no less
    than the median of the images that have any. If these run short, others fill in. For segmentation only.
    `score` is the uniform number that a sample was taken by, `share` its foreground.
    """

    roles = frozenset({"global"})
    tasks = ("segmentation",)
    folds_batch_norms = True
    source = "control, after nnActive, 2026"

    class Params(Strategy.Params):
        """How much is stratified."""

        foreground: float = Field(0.66, ge=0, le=1, description="share of the budget among much foreground")

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        largest, predicted = context.probability(models["global"](images).logits).max(1)
        # Not finite where the prediction means nothing, which is then an error that names the sample.
        return {"foreground": per_image((predicted != 0).double()), "certainty": per_image(largest)}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        share, budget = pool["foreground"], min(budget, len(pool))
        draw, second = torch.rand((2, len(pool)), dtype=torch.float64, generator=generator)
        filled = share[share > 0]
        is_much = share >= filled.quantile(0.5) if len(filled) else torch.zeros(len(pool), dtype=torch.bool)
        preferred = top_k(draw.masked_fill(~is_much, -1), len(pool))[: int(is_much.sum())]
        first = preferred[: round(self.params.foreground * budget)]
        # By other numbers, as those that were passed over have small ones.
        rest = top_k(second.index_fill(0, first, -1), budget - len(first))
        draw[rest] = second[rest]
        return make_selection(pool, torch.cat((first, rest)), {"score": draw, "share": share})
