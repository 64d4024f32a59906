"""Training transforms in whole runs: seeded by address, and nowhere but in training."""

from collections.abc import Mapping
from pathlib import Path

import onnxruntime
import pytest
import torch
import yaml
from safetensors.torch import load_file

from feal.data import locate, open_prepared
from feal.errors import FealError
from feal.experiment import Result, resume, start
from feal.federation.callbacks import NullCallback
from feal.inference import export_model, load_model
from feal.settings import Settings
from tests.runs import differences, fingerprint, tiny, tiny_polyps

LESIONS = {
    "rotation": 10,
    "brightness": 0.15,
    "contrast": 0.1,
    "flips": True,
    "crop": 24,
    "crop_rule": "centre",
    "normalise": "imagenet",
}
POLYPS = {"flips": True, "crop": 32, "crop_rule": "foreground", "normalise": "maximum"}


class Stop(NullCallback):
    """Ends the process's part in a run after its first communication round."""

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def lesions(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return start(tiny(transforms=LESIONS, strategy="entropy"), out=tmp_path_factory.mktemp("runs") / "lesions")


@pytest.fixture(scope="module")
def polyps(tmp_path_factory: pytest.TempPathFactory) -> Result:
    larger = {"name": "synthetic-polyps", "sites": 2, "train": 12, "test": 4, "size": 48}
    settings = tiny_polyps(transforms=POLYPS, strategy="random", rounds=1, dataset=larger)
    return start(settings, out=tmp_path_factory.mktemp("runs") / "polyps")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_a_run_that_was_ended_goes_on_to_the_same_bits(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole: Result = request.getfixturevalue(kind)
    settings = Settings.model_validate(yaml.safe_load((whole.folder / "config.yaml").read_text()))
    with pytest.raises(KeyboardInterrupt):
        start(settings, out=tmp_path / "run", callback=Stop())
    resume(tmp_path / "run")
    assert differences(fingerprint(whole.folder), fingerprint(tmp_path / "run")) == []


@pytest.mark.slow
def test_transforms_change_what_is_learned_and_idle_ones_do_not(tmp_path: Path) -> None:
    def weights(name: str, **transforms: object) -> dict[str, torch.Tensor]:
        settings = tiny(strategy="random", rounds=1, transforms=transforms)
        return load_file(start(settings, out=tmp_path / name).folder / "weights" / "round-001.safetensors")

    plain, idle = weights("plain"), weights("idle", rotation=10, flips=True, brightness=0.2, probability=0)
    flipped = weights("flipped", flips=True)
    assert all(torch.equal(plain[name], idle[name]) for name in plain)
    assert not all(torch.equal(plain[name], flipped[name]) for name in plain)


def test_evaluation_and_selection_see_images_as_prediction_does(lesions: Result) -> None:
    """Normalised and cut to the centre, and nothing else; so does the exported graph."""
    settings = Settings.model_validate(yaml.safe_load((lesions.folder / "config.yaml").read_text()))
    data = open_prepared(locate(settings.dataset))
    model = load_model(lesions.folder, round=1)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for name in data.sites:
        site, kept = data.site(name), lesions.folder / "sites" / name / "diagnostics"
        tested, pool = load_file(kept / "evaluation-001.safetensors"), load_file(kept / "round-001.safetensors")
        for rows, logits in ((tested["rows"], tested["logits"]), (pool["rows"], pool["logits_global"])):
            images = site.read(rows.numpy())
            by_hand = (images[:, :, 4:28, 4:28] - mean.reshape(-1, 1, 1)) / deviation.reshape(-1, 1, 1)
            with torch.no_grad():
                expected = model.network(by_hand)
            assert torch.allclose(logits, expected, atol=1e-4)
            said = model.predict(images)
            assert torch.equal(said.prediction, logits.argmax(1))
            assert torch.allclose(said.probability, model.context.probability(logits), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_an_export_does_to_images_what_the_run_did(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run: Result = request.getfixturevalue(kind)
    export_model(load_model(run.folder), tmp_path / "out", format="both")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "the model itself" in card
    assert "crops of" in card
    model = load_model(tmp_path / "out")
    side = model.info.input.height
    images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0)) * 0.7
    said = model.predict(images)
    assert torch.equal(said.probability, load_model(run.folder).predict(images).probability)
    _, probability = torch.jit.load(str(tmp_path / "out" / "model.torchscript"))(images)
    assert torch.allclose(probability, said.probability, atol=1e-5)
    session = onnxruntime.InferenceSession(
        str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    (probability,) = session.run(["probability"], {"images": images.numpy()})
    assert torch.allclose(torch.from_numpy(probability), said.probability, atol=1e-4)


def test_masks_are_tested_whole(polyps: Result) -> None:
    settings = Settings.model_validate(yaml.safe_load((polyps.folder / "config.yaml").read_text()))
    data = open_prepared(locate(settings.dataset))
    model = load_model(polyps.folder)
    for name in data.sites:
        kept = load_file(polyps.folder / "sites" / name / "diagnostics" / "evaluation-001.safetensors")
        images = data.site(name).read(kept["rows"].numpy())
        with torch.no_grad():
            logits = model.network(images / images.amax((1, 2, 3), keepdim=True))
        energy = -torch.logsumexp(logits.double(), 1).flatten(1).mean(1)
        assert kept["energy"].tolist() == pytest.approx(energy.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("transforms", "sentence"),
    [
        ({"crop": 40}, "transforms.crop=40 exceeds the images of 32 x 32 pixels"),
        ({"crop": 8, "crop_rule": "foreground"}, "needs masks"),
        ({"crop": 2}, "cannot take images of 2 x 2"),
    ],
)
def test_transforms_that_do_not_fit_end_a_run_before_it_begins(
    transforms: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FealError, match=sentence):
        start(tiny(transforms=transforms), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
