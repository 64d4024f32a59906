"""Calibrated evidential sampling (Chen et al., CVPR 2024): uncertainty first, then diversity."""

from typing import Literal

from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy, make_selection
from feal.selection.relaxation import relax
from feal.selection.scores import TERMS, Calibration, Term, calibrated_uncertainty


@STRATEGIES.register("feal", summary="calibrated evidential uncertainty with diversity relaxation")
class Feal(Strategy):
    """Aleatoric uncertainty of both models, calibrated by the global model's epistemic uncertainty (paper, Eq. 5).

    The walk down the scores keeps samples whose neighbours, by the local model's deep features, are not chosen
    yet (Algorithm 1).
    """

    roles = frozenset({"global", "local"})
    default_loss = "evidential"
    folds_batch_norms = True
    source = "Chen et al., CVPR 2024"

    class Params(Strategy.Params):
        """How uncertainty is calibrated, and how diversity is relaxed."""

        n: int = Field(5, ge=1, description="neighbours that the diversity relaxation looks at")
        tau: float = Field(0.85, ge=-1, le=1, description="cosine similarity from which samples are neighbours")
        rule: Literal["nearest", "all", "none"] = Field(
            "nearest",
            description="nearest: the authors' code; all: the paper's Algorithm 1; none: plain top budget",
        )
        calibration: Calibration = Field(
            "minmax",
            description="epistemic factor mapped to [0, 1] over the pool, or the paper's equation as it stands",
        )
        terms: tuple[Term, ...] = Field(
            TERMS, min_length=1, description=f"terms of the calibrated uncertainty (ablation): {', '.join(TERMS)}"
        )

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        aleatoric_global, epistemic_global = models["global"].uncertainty(images, context)
        return {
            "aleatoric_global": aleatoric_global,
            "aleatoric_local": models["local"].uncertainty(images, context)[0],
            "epistemic_global": epistemic_global,
            "deep": models["local"](images).deep,
        }

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        params = self.params
        columns = {name: pool[name] for name in ("aleatoric_global", "aleatoric_local", "epistemic_global")}
        aleatoric_global, aleatoric_local, epistemic_global = columns.values()
        score = calibrated_uncertainty(
            aleatoric_global, aleatoric_local, epistemic_global, params.calibration, terms=params.terms
        )
        indices, filled = relax(score, pool["deep"], budget, n=params.n, tau=params.tau, rule=params.rule)
        walked = len(indices) - filled
        rejected = _count_rejected(score, indices, walked)
        return make_selection(pool, indices, {"score": score, **columns}, rejected=rejected, filled=filled)


def _count_rejected(score: Tensor, indices: Tensor, walked: int) -> int:
    """Return how many candidates the walk rejected before it took its last one (all the rest if it ran short)."""
    if walked < len(indices):
        return len(score) - walked
    if walked == 0:
        return 0
    last = int(indices[-1])
    ahead = (score > score[last]).sum() + (score[:last] == score[last]).sum()  # ties go by row
    return int(ahead) + 1 - walked
