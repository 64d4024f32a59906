"""Weights in a file, for networks of which a part is trained."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from feal.models import build_model
from feal.settings import Settings
from tests.runs import tiny


def write_weights(path: Path, *, seed: int = 3) -> Path:
    """A tiny-cnn for another number of classes, its statistics those of random images."""
    torch.manual_seed(seed)
    network = build_model("tiny-cnn", task="classification", classes=7, channels=3, height=32, width=32)
    with torch.no_grad():
        for _ in range(4):
            network.train()(torch.rand(16, 3, 32, 32))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), path)
    return path


def frozen(weights: Path, part: str, **changes: Any) -> Settings:
    """A tiny run that trains one part of the network."""
    return tiny(weights=str(weights), **{"training.trainable": part, **changes})
