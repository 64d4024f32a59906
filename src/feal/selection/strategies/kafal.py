"""Knowledge-aware federated active learning (Cao et al., ICCV 2023): where global and local model disagree."""

from torch import Generator, Tensor

from feal.selection.base import STRATEGIES, Columns, Models, RankingStrategy, SelectionContext
from feal.selection.scores import per_image, symmetric_divergence


@STRATEGIES.register("kafal", summary="largest divergence of both models, weighed to the labelled classes")
class Kafal(RankingStrategy):
    """1/2 (KL(p_g || p_l) + KL(p_l || p_g)), largest first, of p = softmax(z + log n) of both models.

    n are the labelled samples of each class, so that classes the site knows well count more; classes without
    any are left out. It is the softmax whatever the loss. The form for segmentation is ours: labelled pixels,
    and the mean over pixels.
    """

    roles = frozenset({"global", "local"})
    default_loss = "balanced"
    default_class_count_scope = "site"
    folds_batch_norms = True
    source = "Cao et al., ICCV 2023"

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        ours, own = models["global"](images).logits, models["local"](images).logits
        return {"divergence": per_image(symmetric_divergence(ours, own, context.prior_counts))}

    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        return {"score": pool["divergence"]}
