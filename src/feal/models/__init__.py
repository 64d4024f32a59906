"""Networks that give logits and the features that selection looks at."""

from feal.models import efficientnet, tiny_cnn, unet  # noqa: F401  (each registers its network)
from feal.models.build import build_model, models_for
from feal.models.network import MODELS, Network
from feal.models.output import Output, pool3x3
from feal.models.placement import device_named, on_device, threads

__all__ = [
    "MODELS",
    "Network",
    "Output",
    "build_model",
    "device_named",
    "models_for",
    "on_device",
    "pool3x3",
    "threads",
]
