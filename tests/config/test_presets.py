"""The paper's presets, setting by setting against a table of their own."""

import re
from importlib import resources
from typing import Any

import pytest

from feal.config import load
from feal.settings import Transforms

ISIC = {"rotation": 10.0, "brightness": 0.15, "contrast": 0.1, "flips": True, "probability": 0.5}
ISIC |= {"crop": 224, "crop_rule": "centre"}
TABLE: dict[str, tuple[Any, ...]] = {
    # model, weights, budget, lambda, n, tau, weight decay, transforms
    "fed-isic": ("efficientnet-b0", "imagenet", 500, 1e-2, 5, 0.85, 5e-4, {"normalise": "imagenet", **ISIC}),
    "fed-camelyon": ("densenet-121", "imagenet", 500, 1e-2, 5, 0.85, 1e-5, {"normalise": "imagenet"}),
    "fed-polyp": ("unet", "none", 50, 1e-4, 10, 0.9, 1e-5, {"crop": 320, "crop_rule": "foreground"}),
    "fed-prostate": ("unet", "none", 20, 1e-4, 10, 0.9, 1e-5, {"crop": 320, "crop_rule": "middle"}),
    "fed-fundus": ("unet", "none", 20, 1e-4, 10, 0.9, 1e-5, {"crop": 320, "crop_rule": "middle"}),
    "octa-500": ("unet", "none", 20, 1e-4, 10, 0.9, 1e-5, {}),
}
STATED = {"fed-isic", "fed-polyp"}
"""Those for which the paper has lambda, n and tau."""
each_preset = pytest.mark.parametrize("preset", TABLE)


@each_preset
def test_a_preset_is_the_papers(preset: str) -> None:
    settings = load(preset)
    model, weights, budget, lambda_, n, tau, weight_decay, transforms = TABLE[preset]
    assert (settings.dataset.name, settings.model.name, settings.weights) == (preset, model, weights)
    assert (settings.budget, settings.loss.params["lambda"]) == (budget, lambda_)
    assert (settings.strategy.params["n"], settings.strategy.params["tau"]) == (n, tau)
    assert settings.training.weight_decay == weight_decay
    assert settings.transforms == Transforms(**{"normalise": "maximum", **transforms})


@each_preset
def test_what_all_of_the_papers_presets_share(preset: str) -> None:
    settings = load(preset)
    assert (settings.rounds, settings.communication_rounds, settings.max_labelled_fraction) == (5, 100, 0.85)
    assert (settings.participation, settings.restart, settings.initial_labels) == (1.0, True, "random")
    training = settings.training
    assert (training.lr, training.batch_size, training.local_epochs) == (5e-4, 32, 1)
    assert (training.schedule, training.trainable) == ("half", "all")
    loss, strategy = settings.loss.params, settings.strategy.params
    assert (loss["activation"], loss["annealing"], loss["class_weight"]) == ("relu", 10, "prior")
    assert (settings.strategy.name, settings.loss_name, loss["squared"]) == ("feal", "evidential", None)
    assert (strategy["rule"], strategy["calibration"]) == ("nearest", "minmax")
    assert settings.selection.candidates == "all"


@each_preset
def test_a_preset_says_what_the_paper_does_not_state(preset: str) -> None:
    text = (resources.files("feal.config") / "presets" / f"{preset}.yaml").read_text()
    assert re.search(r"batch_size: 32  # .*the paper does not state it", text)
    assert re.search(r"#.* authors' code.*\ntransforms:", text)
    assert bool(re.search(r"# The paper states neither lambda nor .*\nloss:", text)) == (preset not in STATED)
