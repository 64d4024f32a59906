"""ProbCover (Yehuda et al., NeurIPS 2022): as many samples as possible within a ball around a labelled one."""

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.balls import cover_by_balls, pure_square
from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy


@STRATEGIES.register("probcover", summary="greedy coverage of the pool by balls that hold one class each")
class ProbCover(Strategy):
    """Always the sample within whose ball most samples lie that are in no ball of a labelled or chosen one.

    The radius is the largest at which the share `purity` of all balls lies within one cluster of k-means with as
    many clusters as classes. Features are the global model's; segmentation (a form of ours) takes the pooled
    bottleneck. When all is covered, the rest follow in order. Of more than 10,000 samples, those that a ball holds
    are counted among so many drawn ones, and the radius is that of 2,048 drawn balls; every sample stays a
    candidate. `score` is the share of the pool that the ball adds.
    """

    roles = frozenset({"global"})
    needs_labelled = True
    folds_batch_norms = True
    source = "Yehuda et al., NeurIPS 2022"

    class Params(Strategy.Params):
        """How pure a ball is."""

        purity: float = Field(0.95, gt=0, le=1, description="share of balls that lie within one cluster")

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {"features": models["global"](images).features}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        features = pool["features"]
        known = labelled["features"] if labelled else features[:0]
        points = torch.cat((features, known)) if len(known) else features
        square = pure_square(points, max(2, context.classes), self.params.purity, generator=generator)
        rows, shares = cover_by_balls(features, known, budget, square, generator=generator)
        return Selection(ids=[pool.ids[row] for row in rows.tolist()], parts={"score": shares})
