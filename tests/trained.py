"""Networks with made-up weights, and test images as picture files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from feal.data import PreparedSite, locate, open_prepared
from feal.inference import TrainedModel
from feal.inference.model import ModelInfo
from feal.models import Network, build_model
from feal.settings import Settings

CLASSES = ["one", "two", "three"]


def make_info(model: str = "tiny-cnn", **changes: Any) -> ModelInfo:
    """What `model.json` would say of a model for 32 x 32 RGB images and three classes."""
    task = "segmentation" if model == "unet" else "classification"
    component = {"name": model, **({"channels": 4} if model == "unet" else {})}
    content: dict[str, Any] = {
        "feal": "0.0",
        "model": component,
        "task": task,
        "classes": CLASSES,
        "sha256": "",
        "input": {"channels": 3, "height": 32, "width": 32, "dtype": "uint8", "scale": 255.0},
        "loss": "evidential",
        "evaluation": {"batch_size": 4, "threads": 1, "device": "cpu"},
        "origin": {
            "dataset": "blocks",
            "round": 1,
            "labels": {"alder": 5},
            "tested": {},
            "metrics": {},
            "settings": Settings(dataset="blocks", model=component).dump(),
        },
    }
    return ModelInfo.model_validate({**content, **changes})


def made_up(model: str = "tiny-cnn", **changes: Any) -> TrainedModel:
    """A model whose logits are of the order of 1 and differ from image to image."""
    about = make_info(model, **changes)
    size = about.input
    torch.manual_seed(0)
    network = build_model(
        model,
        params=about.model.params,
        task=about.task,
        classes=len(about.classes),
        channels=size.channels,
        height=size.height,
        width=size.width,
    )
    images = torch.rand(16, size.channels, size.height, size.width)
    _settle(network, images)
    with torch.no_grad():
        logits = network(images)
        network.head.weight *= 2 / logits.std(0).mean()
        network.head.bias.zero_()
    return TrainedModel(about, network.state_dict())


def _settle(network: Network, images: torch.Tensor) -> None:
    """BatchNorm's statistics those of the images, as after training: from its first ones all images look alike."""
    network.eval()
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for layer in layers:
        layer.train().momentum = 1.0
    with torch.no_grad():
        network(images)
    network.eval()


def prepared_sites(settings: Settings) -> dict[str, PreparedSite]:
    """The prepared sites that a run's settings name."""
    data = open_prepared(locate(settings.dataset))
    return {name: data.site(name) for name in data.sites}


def write_pictures(site: PreparedSite, folder: Path) -> list[str]:
    """Write the site's test images as PNG, from the stored bytes, and give their ids."""
    folder.mkdir(parents=True)
    ids = site.ids("test").tolist()
    stored = np.load(site.folder / "images.npy")[site.rows(ids)]
    for sample, image in zip(ids, stored, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"{sample}.png")
    return ids
