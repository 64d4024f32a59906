"""The expected pull of a sample on the network (Wang et al., AAAI 2022), with the entropy as its loss."""

from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, QueryingStrategy, RankingStrategy, SelectionContext
from feal.selection.gradient_norms import gradient_norms, head_gradient_norms


@STRATEGIES.register("gradnorm", summary="largest gradient of the prediction's entropy")
class GradNorm(RankingStrategy, QueryingStrategy):
    """The sum over parameter tensors of the norm of the entropy's gradient, largest first; both models' added.

    `scope: head` looks at the last layer only. For segmentation the entropy is the pixel mean (our own form).
    """

    source = "Wang et al., AAAI 2022"

    class Params(QueryingStrategy.Params):
        """Which model and which of its parameters."""

        scope: Literal["all", "head"] = Field(
            "all", description="gradients of all parameters, or of the last layer (by a closed form)"
        )

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        columns = {}
        for role in self.queried_roles():
            model = models[role]
            if self.params.scope == "head":
                norms = head_gradient_norms(model.module.head, model(images), context.probability)
            else:
                norms = gradient_norms(model.module, images, context.probability)
            columns[f"gradient_{role}"] = norms
        return columns

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        parts = {name: pool[name] for name in (f"gradient_{role}" for role in self.queried_roles())}
        score = torch.stack(list(parts.values())).sum(0)
        return {"score": score, **parts}
