"""Networks that give logits for training and features for selection."""

from feal.models import densenet, efficientnet, lite, tiny_cnn, unet  # noqa: F401  (each registers its network)
from feal.models.base import (
    MODELS,
    ModuleAdapter,
    Network,
    Output,
    pool_3x3,
)
from feal.models.build import build_model, find_model, list_models, restore_model
from feal.models.folding import fold_batch_norms
from feal.models.frozen import SplitClassifier
from feal.models.pretrained import (
    build_initial_model,
    check_weights_source,
    load_weights,
    read_weights,
)

__all__ = [
    "MODELS",
    "ModuleAdapter",
    "Network",
    "Output",
    "SplitClassifier",
    "build_initial_model",
    "build_model",
    "check_weights_source",
    "find_model",
    "fold_batch_norms",
    "list_models",
    "load_weights",
    "pool_3x3",
    "read_weights",
    "restore_model",
]
