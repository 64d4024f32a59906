import importlib
import json
import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

from feal.errors import FealError
from feal.experiment import Result
from feal.inference import TrainedModel, export_model, load_model
from tests.trained import made_up

exporting = importlib.import_module("feal.inference.export")

EVIDENTIAL = {"name": "evidential"}
LARGER = {"channels": 3, "height": 128, "width": 128, "dtype": "uint8", "scale": 255.0}
GRAPHS = [
    pytest.param("tiny-cnn", {}, id="tiny-cnn"),
    pytest.param("tiny-cnn", {"loss": "plain"}, id="softmax"),
    pytest.param("tiny-cnn", {"loss": {**EVIDENTIAL, "activation": "softplus", "squared": True}}, id="softplus"),
    pytest.param("tiny-cnn", {"loss": {**EVIDENTIAL, "activation": "exp", "squared": False}}, id="exp"),
    # At 32 px their deepest norms are over a pixel or four of noise, which amplify rounding.
    pytest.param("efficientnet-b0", {"input": LARGER}, id="efficientnet-b0"),
    pytest.param("unet", {"input": LARGER}, id="unet"),
]


def _snippets(folder: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), flags=re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), GRAPHS)
def test_weights_and_graphs_answer_alike(name: str, changes: dict, tmp_path: Path) -> None:
    model = made_up(name, **changes)
    files = export_model(model, tmp_path / "out", format="both")
    assert [path.name for path in files] == [
        "README.md",
        "model.json",
        "model.onnx",
        "model.safetensors",
        "model.torchscript",
    ]
    scripted = torch.jit.load(str(tmp_path / "out" / "model.torchscript"))
    session = onnxruntime.InferenceSession(
        str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    for count in (1, 7):
        images = torch.rand(count, 3, model.info.input.height, model.info.input.width)
        said, again = model.predict(images), load_model(tmp_path / "out").predict(images)
        assert torch.equal(said.probability, again.probability)
        assert torch.equal(said.epistemic, again.epistemic)
        logits, probability = scripted(images)
        assert torch.allclose(probability, said.probability, rtol=0, atol=1e-5)
        onnx_logits, onnx_probability = session.run(None, {"images": images.numpy()})
        assert np.abs(onnx_probability - said.probability.numpy()).max() < 1e-4
        assert np.abs(onnx_logits - logits.numpy()).max() < 1e-4 * max(1, logits.abs().max())
    assert said.probability.std(0).max() > 1e-2  # images that all look alike would agree by themselves


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), [("tiny-cnn", {}), ("unet", {"input": LARGER})])
def test_what_the_card_tells_people_to_type_works(
    name: str,
    changes: dict,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = made_up(name, **changes)
    export_model(model, tmp_path / "out", format="both")
    monkeypatch.chdir(tmp_path / "out")
    feal, torchscript, onnx, uncertainty = _snippets(tmp_path / "out")
    typed: dict[str, np.ndarray] = {}
    exec(feal + torchscript, typed)
    exec(uncertainty, typed)
    exec(onnx, typed)
    exec(uncertainty, typed)
    said = model.predict(torch.from_numpy(typed["images"]))
    assert typed["probability"] == pytest.approx(said.probability.numpy(), abs=1e-4)
    assert typed["aleatoric"] == pytest.approx(said.aleatoric.numpy(), abs=1e-4)
    assert typed["epistemic"] == pytest.approx(said.epistemic.numpy(), abs=1e-3)
    assert "tensor" in capsys.readouterr().out


def test_a_run_s_weights_are_taken_as_they_are(lesions: Result, tmp_path: Path) -> None:
    export_model(load_model(lesions.folder), tmp_path / "out", format="none")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "model.json",
        "model.safetensors",
    ]
    own = load_file(lesions.folder / "weights" / "round-002.safetensors")
    its = load_file(tmp_path / "out" / "model.safetensors")
    assert own.keys() == its.keys()
    assert all(torch.equal(own[name], its[name]) for name in own)
    content = json.loads((tmp_path / "out" / "model.json").read_text())
    assert content["input"] == {"channels": 3, "height": 32, "width": 32, "dtype": "uint8", "scale": 255.0}
    assert content["loss"]["name"] == "evidential"
    metrics = lesions.rounds[-1].metrics
    assert content["origin"]["metrics"] == {name: values.model_dump() for name, values in metrics.items()}
    assert content["origin"]["tested"] == {"alder": 16, "birch": 16}


def test_an_export_can_be_exported_again(tmp_path: Path) -> None:
    export_model(made_up(), tmp_path / "one", format="none")
    export_model(load_model(tmp_path / "one"), tmp_path / "two", format="torchscript")
    for name in ("model.json", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_network_stays_as_it_was(tmp_path: Path) -> None:
    model = made_up()
    images = torch.rand(2, 3, 32, 32)
    before = model.predict(images)
    export_model(model, tmp_path / "out")
    assert torch.equal(before.probability, model.predict(images).probability)
    assert all(parameter.requires_grad for parameter in model.network.parameters())


@pytest.mark.parametrize("failure", [FealError("no"), OSError(28, "No space left"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(exporting, "_write_torchscript", fail)
    with pytest.raises((FealError, KeyboardInterrupt)):
        export_model(made_up(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.jit, "load", lambda path: lambda images: (torch.zeros(3, 3), torch.zeros(3, 3)))
    with pytest.raises(FealError, match="computes other values than the network"):
        export_model(made_up(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_onnx_cannot_hold_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.onnx.OnnxExporterError("a long story")

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(FealError, match="--format torchscript"):
        export_model(made_up(), tmp_path / "out", format="onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export_model(made_up(), tmp_path / "out", format="none")  # an empty one is fine
    before = (tmp_path / "out" / "README.md").read_bytes()
    with pytest.raises(FealError, match="choose another --out"):
        export_model(made_up("unet"), tmp_path / "out", format="none")
    assert (tmp_path / "out" / "README.md").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_cannot_be_rebuilt_is_said() -> None:
    model = made_up()
    weights = model.network.state_dict()
    weights.pop("classifier.bias")
    with pytest.raises(FealError, match="do not fit a tiny-cnn of 3 classes"):
        TrainedModel(model.info, weights)
