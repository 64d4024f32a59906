"""Networks that give logits and the features that selection looks at."""

from feal.models import densenet, efficientnet, lite_unet, tiny_cnn, unet  # noqa: F401  (each registers its network)
from feal.models.build import build_model, models_for
from feal.models.divided import Divided
from feal.models.network import MODELS, Network
from feal.models.output import Output, pool3x3
from feal.models.placement import device_named, mixed_precision, on_device, threads
from feal.models.weights import check_source, find_weights, frozen_model, load_weights, starting_model

__all__ = [
    "MODELS",
    "Divided",
    "Network",
    "Output",
    "build_model",
    "check_source",
    "device_named",
    "find_weights",
    "frozen_model",
    "load_weights",
    "mixed_precision",
    "models_for",
    "on_device",
    "pool3x3",
    "starting_model",
    "threads",
]
