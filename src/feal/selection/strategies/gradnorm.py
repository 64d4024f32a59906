"""The expected pull of a sample on the network (Wang et al., AAAI 2022), with the entropy as its loss."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.contract import (
    STRATEGIES,
    Choice,
    Columns,
    Context,
    Models,
    QueryingStrategy,
    RoleModel,
    chosen,
)
from feal.selection.gradients import gradient_norms, head_gradient_norms
from feal.selection.ranking import best


@STRATEGIES.register("gradnorm", summary="largest gradient of the prediction's entropy")
class GradNorm(QueryingStrategy):
    """The sum over parameter tensors of the norm of the entropy's gradient, largest first; both models' added.

    `scope: head` looks at the last layer only. For segmentation the entropy is the pixel mean (our own form).
    """

    settings: ClassVar[tuple[str, ...]] = ("selection.scope",)
    source: ClassVar[str] = "Wang et al., AAAI 2022"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        return {f"gradient_{role}": _norms(models[role], images, context) for role in self.asked_roles(context)}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        parts = {name: pool[name] for name in (f"gradient_{role}" for role in self.asked_roles(context))}
        score = torch.stack(list(parts.values())).sum(0)
        return chosen(pool, best(score, budget), {"score": score, **parts})


def _norms(model: RoleModel, images: torch.Tensor, context: Context) -> torch.Tensor:
    if context.selection.scope == "head":
        return head_gradient_norms(model.module.head, model(images), context.probability)
    return gradient_norms(model.module, images, context.probability)
