"""Weights that a network starts from, well and badly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from feal.errors import FealError
from feal.models import MODELS, Network, build_model, check_source, find_weights, load_weights, starting_model
from feal.settings import Settings
from feal.tensors import tensors_digest

SIZE = {"task": "classification", "channels": 3, "height": 32, "width": 32}


def build(name: str = "tiny-cnn", *, seed: int = 0, classes: int = 3, **changes) -> Network:
    torch.manual_seed(seed)
    return build_model(name, classes=classes, **{**SIZE, **changes})


def same(one: Network, other: Network) -> list[str]:
    state = other.state_dict()
    return [name for name, tensor in one.state_dict().items() if torch.equal(tensor, state[name])]


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_a_file_gives_every_weight(ending: str, tmp_path: Path) -> None:
    source, path = build(seed=1), tmp_path / f"weights.{ending}"
    if ending == "pth":
        torch.save(source.state_dict(), path)
    else:
        save_file(source.state_dict(), path)
    torch.manual_seed(2)
    settings = Settings(dataset="d", model="tiny-cnn", weights=str(path))
    network = starting_model(settings, classes=3, **SIZE)
    assert len(same(network, source)) == len(source.state_dict())


@pytest.mark.parametrize("change", ["other classes", "no last layer", "half of one"])
def test_a_last_layer_that_does_not_fit_stays_random(change: str) -> None:
    tensors = dict(build(seed=1, classes=7 if change == "other classes" else 3).state_dict())
    for name in {"no last layer": ["weight", "bias"], "half of one": ["bias"]}.get(change, []):
        del tensors[f"classifier.{name}"]
    network, untouched = build(seed=2), build(seed=2)
    load_weights(network, tensors, source="a file")
    assert same(network, untouched)[-2:] == ["classifier.weight", "classifier.bias"]
    assert all(torch.equal(network.state_dict()[name], tensors[name]) for name in tensors if "blocks" in name)


def test_nothing_but_the_last_layer_is_drawn_from_the_seed() -> None:
    tensors = find_weights("efficientnet-lite0", "imagenet")
    networks = [build("efficientnet-lite0", seed=seed) for seed in (1, 2)]
    for network in networks:
        load_weights(network, tensors, source="imagenet")
    one, other = networks
    assert set(one.state_dict()) - set(same(one, other)) == {"net._fc.weight"}


def test_imagenets_last_layer_is_not_taken_even_if_it_fits() -> None:
    tensors = find_weights("efficientnet-lite0", "imagenet")
    network = build("efficientnet-lite0", classes=1000)
    load_weights(network, tensors, source="imagenet")
    assert not torch.equal(network.head.weight, tensors["_fc.weight"])
    assert torch.equal(network.net._conv_stem.weight, tensors["_conv_stem.weight"])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda state: state.update({"blocks.4.weight": torch.zeros(32, 16, 5, 5)}),
            "blocks.4.weight is (32, 16, 5, 5), not (32, 16, 3, 3)): give weights of that network.",
        ),
        (lambda state: state.pop("blocks.0.weight"), "(blocks.0.weight is missing)"),
        (lambda state: state.update({"blocks.9.extra": torch.zeros(1)}), "(blocks.9.extra is of no layer of it)"),
        (lambda state: state["blocks.1.bias"].fill_(torch.nan), "(blocks.1.bias is not finite)"),
        (lambda state: state["classifier.weight"].fill_(torch.inf), "(classifier.weight is not finite)"),
    ],
    ids=["shape", "missing", "unknown", "nan", "nan in the last layer"],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(spoil, sentence: str) -> None:
    tensors = dict(build(seed=1).state_dict())
    spoil(tensors)
    network = build(seed=2)
    with pytest.raises(FealError, match=re.escape(sentence)):
        load_weights(network, tensors, source="a file")
    assert len(same(network, build(seed=2))) == len(network.state_dict())


def test_weights_of_another_network_are_counted() -> None:
    with pytest.raises(FealError, match="do not fit a TinyCNN for images of 3 channels .* more like that"):
        load_weights(build(), build("efficientnet-b0").state_dict(), source="a file")


def test_weights_for_colours_do_not_fit_grey_images() -> None:
    grey = build("efficientnet-lite0", channels=1)
    with pytest.raises(FealError, match=re.escape("for images of 1 channels (_conv_stem.weight is (32, 3, 3, 3)")):
        load_weights(grey, find_weights("efficientnet-lite0", "imagenet"), source="imagenet")


def test_counters_of_batches_may_be_missing() -> None:
    tensors = {name: value for name, value in build(seed=1).state_dict().items() if "tracked" not in name}
    load_weights(build(), tensors, source="a file")


def test_which_networks_imagenet_knows() -> None:
    known = [name for name in MODELS.names() if MODELS.get(name).imagenet]
    assert known == ["densenet-121", "efficientnet-b0", "efficientnet-lite0", "unet-lite0"]
    sentence = f"no ImageNet weights for tiny-cnn, only for {', '.join(known)}: give a file, or none."
    for ask in (check_source, find_weights):
        with pytest.raises(FealError, match=sentence):
            ask("tiny-cnn", "imagenet")
    for name in known:
        check_source(name, "imagenet")


def test_a_file_that_is_not_there_is_refused_beforehand(tmp_path: Path) -> None:
    check_source("tiny-cnn", "none")
    with pytest.raises(
        FealError, match="There is no file of weights .*: weights is none, imagenet or such a file"
    ):
        check_source("tiny-cnn", str(tmp_path / "absent.pth"))


def test_a_file_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(build(seed=1).state_dict(), path)
    digest = tensors_digest(find_weights("tiny-cnn", str(path)))
    find_weights("tiny-cnn", str(path), digest=digest)
    save_file(build(seed=2).state_dict(), path)
    with pytest.raises(FealError, match="are not those that the run began with: put those back"):
        find_weights("tiny-cnn", str(path), digest=digest)
