"""DropQuery (Gupte et al., TMLR 2024): different samples among those whose prediction dropout changes."""

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, make_selection
from feal.selection.kmeans import k_means, pick_best_of_each
from feal.selection.scores import per_image

ITERATIONS = 20
ENOUGH = 25  # candidates, times the budget


@STRATEGIES.register("dropquery", summary="clusters of samples whose class changes under dropout")
class DropQuery(Strategy):
    """k-means on candidates with k = budget; from each cluster the sample nearest to its centre.

    The last layer of the global model is run again on its input with dropout, `passes` times. Candidates are the
    samples whose predicted class changes in more than half of the passes; with fewer than 25 times the budget the
    threshold is lowered until there are so many, or all. Features are the global model's. Segmentation (a form of
    ours): dropout of channels, the mean over passes of the share of pixels that change, the pooled bottleneck.

    All samples of a pass share one mask, drawn from the number of the pass alone, so that neither their order nor
    the batch decides. `score` is the share of passes that change the class, `distance` that to the centre.
    """

    roles = frozenset({"global"})
    source = "Gupte et al., TMLR 2024"

    class Params(Strategy.Params):
        """How the prediction is perturbed."""

        rate: float = Field(0.75, gt=0, lt=1, description="share of the last layer's inputs that are dropped")
        passes: int = Field(3, ge=1, description="predictions with dropout")

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        output, head = models["global"](images), models["global"].module.head
        inputs, predicted = output.head_input, output.logits.argmax(1)
        shape = (1, inputs.shape[1], *[1] * (inputs.dim() - 2))
        changes = torch.zeros(len(images), dtype=torch.float64, device=inputs.device)
        for number in range(self.params.passes):
            draw = torch.rand(shape, generator=torch.Generator().manual_seed(number))
            mask = (draw >= self.params.rate).to(inputs) / (1 - self.params.rate)
            changes += per_image((head(inputs * mask).argmax(1) != predicted).double())
        return {"features": output.features, "changes": changes / self.params.passes}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0 or budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        changes = pool["changes"]
        least = changes.sort(descending=True).values[min(ENOUGH * budget, len(pool)) - 1]
        candidates = ((changes > 0.5) | (changes >= least)).nonzero()[:, 0]
        points = pool["features"][candidates]
        labels = k_means(points, budget, generator=generator, iterations=ITERATIONS)
        distances = torch.zeros(len(pool), dtype=torch.float64)
        distances[candidates] = distances_to_centres(points, labels)
        rows = candidates[pick_best_of_each(labels, -distances[candidates], budget)]
        return make_selection(pool, rows, {"score": changes, "distance": distances})


def distances_to_centres(points: Tensor, labels: Tensor) -> Tensor:
    """Return the distance of each point to the mean of its cluster, float64 [N]."""
    sums = torch.zeros((int(labels.max()) + 1, points.shape[1]), dtype=torch.float64)
    for rows in torch.arange(len(points)).split(2**12):
        sums.index_add_(0, labels[rows], points[rows].double())
    centres = sums / torch.bincount(labels).clamp(min=1)[:, None]
    parts = [
        torch.linalg.vector_norm(points[rows].double() - centres[labels[rows]], dim=1)
        for rows in torch.arange(len(points)).split(2**12)
    ]
    return torch.cat(parts)
