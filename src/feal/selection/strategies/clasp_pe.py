"""ClaSP-PE (nnActive, 2026): noisy ranks of the pixel entropy, most of them class by class."""

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy
from feal.selection.scores import entropy

SHARPEST = 100  # beta in the last selection
TINY = torch.finfo(torch.float64).tiny


@STRATEGIES.register("clasp-pe", summary="noisy ranks of the pixel entropy, most of them for each class in turn")
class ClaspPe(Strategy):
    """The share `stratified` of the budget evenly over foreground classes by S_c = mean(H p_c), the rest by S.

    H is the entropy of a pixel of the global model, S = mean(H) over the image; class 0 is the background. Ranks
    are by log S + Gumbel(0, 1 / beta), beta = 100^(t / (T - 1)) in selection t = 0 ... T - 1 of the run (0 if it
    has one selection only), so that early choices are spread and late ones are sharp. For segmentation only.
    `score` is the noisy rank at which a sample was taken, `class` the class, and 0 for a pick by S.
    """

    roles = frozenset({"global"})
    tasks = ("segmentation",)
    folds_batch_norms = True
    source = "nnActive, 2026"

    class Params(Strategy.Params):
        """How much is stratified."""

        stratified: float = Field(0.66, ge=0, le=1, description="share of the budget that is spread over classes")

    params: Params

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        probability = context.probability(models["global"](images).logits)
        each = entropy(probability)
        by_class = torch.stack([(each * p).flatten(1).mean(1) for p in probability.unbind(1)], dim=1)
        return {"entropy": each.flatten(1).mean(1), "class_entropy": by_class}

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        if len(pool) == 0:
            return Selection(ids=[])
        scores = torch.cat((pool["entropy"][:, None], pool["class_entropy"][:, 1:].double()), dim=1)
        noise = -torch.log(-torch.log(draw_open(scores.shape, generator))) / sharpness(context)
        ranks = scores.clamp_min_(TINY).log_().add_(noise)
        budget = min(budget, len(pool))
        stratified = round(self.params.stratified * budget)
        turns = [1 + number % (scores.shape[1] - 1) for number in range(stratified)] + [0] * (budget - stratified)
        rows = list[int]()
        for column in turns:
            row = int(ranks[:, column].masked_fill(_is_among(rows, len(pool)), -torch.inf).argmax())
            rows.append(row)
        parts = {"score": ranks[rows, turns], "class": torch.tensor(turns, dtype=torch.float64)}
        return Selection(ids=[pool.ids[row] for row in rows], parts=parts)


def sharpness(context: SelectionContext) -> float:
    """Return beta: 1 in the first selection of a run, 100 in the last.

    A run of R rounds selects R - 1 times.
    """
    last = context.rounds - 2
    share = (context.round - 1) / last if last > 0 else 0.0
    return float(SHARPEST ** min(max(share, 0.0), 1.0))


def draw_open(shape: torch.Size, generator: Generator) -> Tensor:
    """Draw uniform numbers above 0 and below 1, float64."""
    return torch.rand(shape, dtype=torch.float64, generator=generator).clamp_(2.0**-60, 1 - 2.0**-53)


def _is_among(rows: list[int], size: int) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[rows] = True
    return mask
