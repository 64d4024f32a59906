"""Uncertainty herding (Bae et al., ICLR 2025): coverage of what the model is unsure of."""

from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, SelectionContext
from feal.selection.coverage import smallest_square
from feal.selection.strategies.margin import observe_margin
from feal.selection.strategies.maxherding import MaxHerding


@STRATEGIES.register(
    "uherding", summary="greedy coverage, weighed by the closeness of the two most likely classes"
)
class UHerding(MaxHerding):
    """`maxherding` with weights u_j: greedily argmax_i sum_j u_j max(0, K_ij - m_j), u_j = 1 - (p_(1) - p_(2)).

    s is the smallest distance between two labelled samples that are no copies, so that coverage becomes finer as
    labels grow; with fewer than two of them s^2 is that of `maxherding`. Probabilities and features are the
    global model's; segmentation (a form of ours) takes the pixel mean of u and the pooled bottleneck. Where every
    u is 0, all count alike. `score` is the gain as a share of the sum of u, `weight` the sample's own u.
    """

    source = "Bae et al., ICLR 2025"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        output = models["global"](images)
        return {"features": output.features, "margin": observe_margin(output.logits, context)}

    def weigh(self, pool: Columns) -> Tensor | None:
        return pool["margin"]

    def find_square(self, features: Tensor, known: Tensor, generator: Generator) -> float:
        return smallest_square(known) or super().find_square(features, known, generator)
