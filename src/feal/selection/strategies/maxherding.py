"""MaxHerding (Bae et al., ECCV 2024): samples that resemble as much as possible of what none resembles yet."""

from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy
from feal.selection.coverage import cover_greedily, quantile_square


@STRATEGIES.register("maxherding", summary="greedy coverage of the pool by a kernel of features")
class MaxHerding(Strategy):
    """Greedily argmax_i sum_j max(0, K_ij - m_j), with K_ij = exp(-|e_i - e_j|^2 / s^2) and e the features.

    j runs over the pool, m_j is the largest K_jl over labelled and chosen l, and s^2 a quantile of the pool's
    squared distances. It uses no label and no class, so it also suits a first round. The features are those of
    the global model; segmentation (a form of ours) takes the pooled bottleneck. Of more than 10,000 samples, the
    sum runs over so many drawn ones and the quantile over the pairs of 3,000; every sample stays a candidate.
    `score` is the gain as a share of the pool.
    """

    roles = frozenset({"global"})
    needs_labelled = True
    folds_batch_norms = True
    source = "Bae et al., ECCV 2024"

    class Params(Strategy.Params):
        """How far a sample covers."""

        quantile: float = Field(
            0.1, ge=0, le=1, description="quantile of the pool's squared distances that is the kernel's s^2"
        )

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {"features": models["global"](images).features}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        features, weights = pool["features"], self.weigh(pool)
        known = labelled["features"] if labelled else features[:0]
        square = self.find_square(features, known, generator)
        rows, gains = cover_greedily(features, known, budget, square, weights=weights, generator=generator)
        weight = {} if weights is None else {"weight": weights[rows]}
        return Selection(ids=[pool.ids[row] for row in rows.tolist()], parts={"score": gains, **weight})

    def weigh(self, pool: Columns) -> Tensor | None:
        """Return how much it counts that each sample is covered [n]; None if all count alike."""
        return None

    def find_square(self, features: Tensor, known: Tensor, generator: Generator) -> float:
        """Return the kernel's s^2 for features of the pool and of labelled samples."""
        return quantile_square(features, self.params.quantile, generator=generator)
