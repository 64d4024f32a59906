"""BADGE (Ash et al., ICLR 2020): diverse and uncertain at once, by the gradients of the last layer."""

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from feal.selection.base import STRATEGIES, Columns, Models, QueryingStrategy, Selection, SelectionContext
from feal.selection.kmeans import OuterProducts, k_means_plus_plus


@STRATEGIES.register("badge", summary="k-means++ on the last layer's gradients for the predicted class")
class Badge(QueryingStrategy):
    """k-means++ on G = q (x) h, with q = onehot(argmax p) - p and the features h; the longest G first.

    The ensemble takes the mean of both models' G. In segmentation (a form of ours) G is the sum over pixels of
    q (x) what the last layer gets. `score` is ||G||, `squared_distance` the D^2 of k-means++ at the moment of
    the pick (for the first pick ||G||^2).
    """

    folds_batch_norms = True
    source = "Ash et al., ICLR 2020"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        columns, gradients = dict[str, Tensor](), list[Tensor]()
        for role in self.queried_roles():
            output = models[role](images)
            probability = context.probability(output.logits)
            residual = one_hot(probability.argmax(1), context.classes).movedim(-1, 1) - probability
            if context.task == "segmentation":
                inputs = output.head_input
                gradients.append(torch.einsum("bchw,bkhw->bck", residual.to(inputs.dtype), inputs).flatten(1))
            else:
                columns |= {f"residual_{role}": residual, f"features_{role}": output.features}
        return {"gradient": torch.stack(gradients).mean(0)} if gradients else columns

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        gradients = OuterProducts(self._factors(pool, context))
        rows, squares = k_means_plus_plus(gradients, budget, generator)
        return Selection(
            ids=[pool.ids[row] for row in rows.tolist()],
            parts={"score": gradients.squares[rows].sqrt(), "squared_distance": squares},
        )

    def _factors(self, pool: Columns, context: SelectionContext) -> list[tuple[Tensor, Tensor]]:
        if context.task == "segmentation":
            return [(torch.ones(len(pool), 1), pool["gradient"])]
        return [(pool[f"residual_{role}"], pool[f"features_{role}"]) for role in self.queried_roles()]
