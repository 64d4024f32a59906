"""Rarity herding: our own combination of uncertainty herding with the score of strata."""

from torch import Tensor

from feal.selection.base import STRATEGIES, Columns, Models, SelectionContext
from feal.selection.strategies.maxherding import MaxHerding
from feal.selection.strategies.strata import observe_shares, rarity_of


@STRATEGIES.register("rarity-herding", summary="greedy coverage, weighed by the expected rarity of the label")
class RarityHerding(MaxHerding):
    """`maxherding` with weights a_j: greedily argmax_i sum_j a_j max(0, K_ij - m_j), a_j = sum_c p_c / (n_c + 1).

    a is the expected rarity of `strata`: p the mean of both models' probabilities, n_c the labelled samples of all
    sites. s^2 is that of `maxherding`. Segmentation: p the pixel mean, n_c the share of class c among the labelled
    pixels, features the pooled bottleneck. `score` is the gain as a share of the sum of a, `weight` the sample's
    own a.
    """

    roles = frozenset({"global", "local"})
    default_loss = "balanced"
    source = "this project, after Bae et al., ICLR 2025"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        rarity = rarity_of(observe_shares(images, models, context), context)
        return {"features": models["global"](images).features, "rarity": rarity}

    def weigh(self, pool: Columns) -> Tensor | None:
        return pool["rarity"]
