"""Calibrated evidential sampling (Chen et al., CVPR 2024): uncertainty first, then diversity."""

from __future__ import annotations

from typing import ClassVar

import torch

from feal.selection.calibration import calibrated_uncertainty
from feal.selection.contract import STRATEGIES, Choice, Columns, Context, Models, Role, Strategy, chosen
from feal.selection.relaxation import relax
from feal.settings import Loss


@STRATEGIES.register("feal", summary="calibrated evidential uncertainty with diversity relaxation")
class Feal(Strategy):
    """Aleatoric uncertainty of both models, calibrated by the global model's epistemic uncertainty (paper, Eq. 5).

    The walk down the scores keeps samples whose neighbours, by the local model's deep features, are not chosen
    yet (Algorithm 1).
    """

    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local"})
    default_loss: ClassVar[Loss] = "evidential"
    settings: ClassVar[tuple[str, ...]] = (
        "selection.terms",
        "selection.calibration",
        "selection.rule",
        "selection.n",
        "selection.tau",
        "evidence.*",
    )
    source: ClassVar[str] = "Chen et al., CVPR 2024"

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        aleatoric_global, epistemic_global = models["global"].uncertainty(images, context)
        return {
            "aleatoric_global": aleatoric_global,
            "aleatoric_local": models["local"].aleatoric(images, context),
            "epistemic_global": epistemic_global,
            "deep": models["local"](images).deep,
        }

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        if len(pool) == 0:
            return Choice(ids=[])
        settings = context.selection
        score = calibrated_uncertainty(
            pool["aleatoric_global"],
            pool["aleatoric_local"],
            pool["epistemic_global"],
            settings.calibration,
            terms=settings.terms,
        )
        indices, filled = relax(score, pool["deep"], budget, settings.n, settings.tau, settings.rule)
        walked = len(indices) - filled
        parts = {
            "score": score,
            "aleatoric_global": pool["aleatoric_global"],
            "aleatoric_local": pool["aleatoric_local"],
            "epistemic_global": pool["epistemic_global"],
        }
        return chosen(pool, indices, parts, rejected=_passed_over(score, indices, walked), filled=filled)


def _passed_over(score: torch.Tensor, indices: torch.Tensor, walked: int) -> int:
    """Candidates that the walk rejected before it took its last one (all the rest if it ran short)."""
    if walked < len(indices):
        return len(score) - walked
    if walked == 0:
        return 0
    order = torch.argsort(score, descending=True, stable=True)
    return int((order == indices[-1]).nonzero()) + 1 - walked
