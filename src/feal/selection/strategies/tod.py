"""Temporal output discrepancy (Huang et al., ICCV 2021): predictions that have changed."""

from collections.abc import Mapping

from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import (
    ENOUGH_EPOCHS,
    STRATEGIES,
    Columns,
    Models,
    QueryingStrategy,
    QueryModel,
    RankingStrategy,
    Role,
    SelectionContext,
)
from feal.selection.scores import half_squared_distance, per_image

COMPARED: Mapping[QueryModel, tuple[Role, Role]] = {
    "global": ("global", "global_previous"),
    "local": ("local", "local_previous"),
    "ensemble": ("finetuned", "local_previous"),
}
"""The model now and the one before, for each `query_model`."""


@STRATEGIES.register("tod", summary="largest change of the class probabilities since the previous round")
class Tod(RankingStrategy, QueryingStrategy):
    """1/2 ||p_now - p_before||^2, largest first.

    `before` is the same model at the end of the previous active-learning round. Under `ensemble` the global
    model, fine-tuned on the site's labels, is compared with the previous local model; it is trained as LoGo's
    public code trains a site's model, until 99 % of the labels are predicted or for `epochs` epochs. The form for
    segmentation is ours: the mean over pixels.
    """

    roles = frozenset(role for pair in COMPARED.values() for role in pair)
    folds_batch_norms = True
    source = "Huang et al., ICCV 2021"

    class Params(QueryingStrategy.Params):
        """Which model is queried, and how long it is fine-tuned."""

        epochs: int = Field(
            ENOUGH_EPOCHS, ge=1, description="under ensemble: most epochs of fine-tuning; fewer at 99 % accuracy"
        )

    params: Params

    @property
    def training_epochs(self) -> int:
        return self.params.epochs

    def required_roles(self) -> frozenset[Role]:
        return frozenset(COMPARED[self.params.query_model])

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        now, before = (
            context.probability(models[role](images).logits) for role in COMPARED[self.params.query_model]
        )
        return {"discrepancy": per_image(half_squared_distance(now, before))}

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        return {"score": pool["discrepancy"]}
