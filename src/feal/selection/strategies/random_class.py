"""Random choice in equal numbers of each predicted class: a control for classification."""

import torch
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, make_selection
from feal.selection.kmeans import pick_best_of_each


@STRATEGIES.register("random-class", summary="uniform, in equal numbers of each predicted class")
class RandomClass(Strategy):
    """One sample at random of each class that the global model predicts, then a second of each, and so on.

    For classification only. `score` is the uniform number that a sample was taken by, `class` its predicted class.
    """

    roles = frozenset({"global"})
    tasks = ("classification",)
    folds_batch_norms = True
    source = "control"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        largest, predicted = context.probability(models["global"](images).logits).max(1)
        # Not finite where the prediction means nothing, which is then an error that names the sample.
        return {"predicted": predicted.double(), "certainty": largest}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        draw = torch.rand(len(pool), dtype=torch.float64, generator=generator)
        rows = pick_best_of_each(pool["predicted"].long(), draw, budget)
        return make_selection(pool, rows, {"score": draw, "class": pool["predicted"]})
