"""Images on their way to a network: random transforms in training, normalisation everywhere.

All are functions of batches [b, C, H, W] on any device.
"""

from feal.data.transforms.training import augmented, check_transforms, seen

__all__ = ["augmented", "check_transforms", "seen"]
