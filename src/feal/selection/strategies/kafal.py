"""Knowledge-aware federated active learning (Cao et al., ICCV 2023): where global and local model disagree."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    Role,
    Selection,
    SelectionContext,
    Strategy,
    make_selection,
    per_image,
    top_k,
)
from feal.selection.scores import symmetric_divergence
from feal.settings import ClassCountScope


@STRATEGIES.register("kafal", summary="largest divergence of both models, weighed to the labelled classes")
class Kafal(Strategy):
    """1/2 (KL(p_g || p_l) + KL(p_l || p_g)), largest first, of p = softmax(z + log n) of both models.

    n are the labelled samples of each class, so that classes the site knows well count more; classes without
    any are left out. It is the softmax whatever the loss. The form for segmentation is ours: labelled pixels,
    and the mean over pixels.
    """

    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local"})
    default_loss: ClassVar[str] = "balanced"
    default_class_count_scope: ClassVar[ClassCountScope | None] = "site"
    source: ClassVar[str] = "Cao et al., ICCV 2023"

    def observe(self, images: torch.Tensor, models: Models, context: SelectionContext) -> dict[str, torch.Tensor]:
        ours, own = models["global"](images).logits, models["local"](images).logits
        return {"divergence": per_image(symmetric_divergence(ours, own, context.prior_counts))}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: SelectionContext,
        budget: int,
        generator: torch.Generator,
    ) -> Selection:
        score = pool["divergence"]
        return make_selection(pool, top_k(score, budget), {"score": score})
