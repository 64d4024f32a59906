"""TypiClust (Hacohen et al., ICML 2022): the most typical sample of every region without a label."""

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, top_k
from feal.selection.coverage import CROWD, draw_rows, typicality
from feal.selection.kmeans import k_means

ITERATIONS = 20
SMALL = 5  # samples up to which a cluster counts as outliers


@STRATEGIES.register("typiclust", summary="clusters without a label, in each the sample in the densest place")
class TypiClust(Strategy):
    """k-means on features with min(|L| + B, `clusters`) clusters; from each the most typical unlabelled sample.

    Typicality = 1 / mean distance to the min(`neighbours`, n / 2) nearest of the n unlabelled samples in the
    cluster. Clusters come by their labelled samples, fewest first, then by size, largest first; those of 5 samples
    or fewer last. When each has given one sample, the second most typical of each follow, and so on. Features are
    the global model's; segmentation (a form of ours) takes the pooled bottleneck. Of a cluster of more than 5,000,
    so many drawn ones stand for all.
    """

    roles = frozenset({"global"})
    needs_labelled = True
    folds_batch_norms = True
    source = "Hacohen et al., ICML 2022"

    class Params(Strategy.Params):
        """How many clusters there are, and how local typicality is."""

        clusters: int = Field(500, ge=1, description="most clusters")
        neighbours: int = Field(20, ge=1, description="nearest samples whose mean distance is the typicality")

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        return {"features": models["global"](images).features}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0 or budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        features, size = pool["features"], len(pool)
        points = torch.cat((features, labelled["features"])) if labelled else features
        count = min(len(points) - size + budget, self.params.clusters)
        labels = k_means(points, count, generator=generator, iterations=ITERATIONS)
        order = _order_clusters(labels, size)
        ranked, score = list[Tensor](), torch.zeros(size, dtype=torch.float64)
        for cluster in order[:budget]:
            members = (labels[:size] == cluster).nonzero()[:, 0]
            some = members[draw_rows(len(members), CROWD, generator)]
            score[some] = typicality(features[some], self.params.neighbours)
            rest = members[~torch.isin(members, some)]
            ranked.append(torch.cat((some[top_k(score[some], len(some))], rest))[:budget])
        turns = max(map(len, ranked))
        rows = [int(row[turn]) for turn in range(turns) for row in ranked if turn < len(row)][:budget]
        parts = {"score": score[rows], "cluster": labels[rows]}
        return Selection(ids=[pool.ids[row] for row in rows], parts=parts)


def _order_clusters(labels: Tensor, size: int) -> list[int]:
    """Return the clusters with one of the first `size` points: few other points first, then large ones."""
    total = torch.bincount(labels)
    inside = torch.bincount(labels[:size], minlength=len(total))
    sizes, unlabelled = total.tolist(), inside.tolist()
    found = [cluster for cluster, count in enumerate(unlabelled) if count]
    return sorted(
        found,
        key=lambda cluster: (
            sizes[cluster] <= SMALL,
            sizes[cluster] - unlabelled[cluster],
            -sizes[cluster],
            cluster,
        ),
    )
