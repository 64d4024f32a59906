"""What a run said of its test images, the command line says again: from the run, the export and its graphs."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from scipy.special import digamma, gammaln

from feal.data import PreparedSite, open_labels
from feal.experiment import Result
from feal.inference import export_model, load_model
from feal.rundir.journal import read_settings
from tests.command import Command
from tests.trained import prepared_sites, write_pictures

pytestmark = pytest.mark.slow


def _sites(result: Result) -> Iterator[tuple[PreparedSite, dict[str, torch.Tensor]]]:
    """Every site, with what it kept of the last round's evaluation."""
    for name, site in prepared_sites(read_settings(result.folder)).items():
        kept = load_file(result.folder / "sites" / name / "diagnostics" / "evaluation-002.safetensors")
        assert kept["rows"].tolist() == site.rows(site.ids("test")).tolist()
        yield site, kept


def _predict(command: Command, model: Path, images: Path, out: Path) -> list[dict[str, str]]:
    ended = command("predict", model, "--images", images, "--out", out)
    assert ended.code == 0, ended.err
    with (out / "predictions.csv").open() as file:
        return list(csv.DictReader(file))


def _column(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _truth(site: PreparedSite) -> np.ndarray:
    return open_labels(site).of(site.ids("test")).numpy()


@pytest.fixture(scope="module")
def exported(lesions: Result, polyps: Result, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both runs, exported with both graphs."""
    folder = tmp_path_factory.mktemp("exports")
    for name, run in (("lesions", lesions), ("polyps", polyps)):
        export_model(load_model(run.folder), folder / name, format="both")
    return {name: folder / name for name in ("lesions", "polyps")}


def test_classes_probabilities_and_uncertainties_are_those_of_the_evaluation(
    command: Command, lesions: Result, exported: dict[str, Path], tmp_path: Path
) -> None:
    figures = lesions.rounds[-1].metrics["balanced_accuracy"].sites
    predicted = set()
    for site, kept in _sites(lesions):
        write_pictures(site, tmp_path / site.name)
        rows = _predict(command, exported["lesions"], tmp_path / site.name, tmp_path / f"out-{site.name}")
        assert [row["image"] for row in rows] == [f"{sample}.png" for sample in site.ids("test")]

        logits = kept["logits"].double().numpy()
        alpha = np.maximum(logits, 0) + 1
        total = alpha.sum(1, keepdims=True)
        index = logits.argmax(1)
        assert [row["class"] for row in rows] == [site.classes[number] for number in index]
        assert _column(rows, "class_index").tolist() == index.tolist()
        probability = np.stack([_column(rows, f"p_{name}") for name in site.classes], axis=1)
        assert probability == pytest.approx(alpha / total, abs=1e-6)
        assert (_column(rows, "probability") == probability[np.arange(len(rows)), index]).all()
        aleatoric = (alpha / total * (digamma(total + 1) - digamma(alpha + 1))).sum(1)
        assert _column(rows, "aleatoric") == pytest.approx(aleatoric, abs=1e-6)
        slope = ((alpha - 1) * (digamma(alpha) - digamma(total))).sum(1)
        assert _column(rows, "epistemic") == pytest.approx(
            gammaln(alpha).sum(1) - gammaln(total[:, 0]) - slope, abs=1e-6
        )

        truth, said = _truth(site), _column(rows, "class_index")
        recalls = [float((said[truth == c] == c).mean()) for c in range(len(site.classes)) if (truth == c).any()]
        assert sum(recalls) / len(recalls) == figures[site.name]
        predicted |= set(said)
    assert len(predicted) > 2  # a constant answer would agree by itself


def test_in_the_same_batches_the_bits_are_the_same(
    command: Command, lesions: Result, exported: dict[str, Path], tmp_path: Path
) -> None:
    """Sample by sample to the last bit: same order, so same batches, same threads, same memory format."""
    context = load_model(exported["lesions"]).context
    for site, kept in _sites(lesions):
        write_pictures(site, tmp_path / site.name)
        rows = _predict(command, exported["lesions"], tmp_path / site.name, tmp_path / f"out-{site.name}")
        expected = context.probability(kept["logits"]).double().numpy()
        for number, name in enumerate(site.classes):
            assert (_column(rows, f"p_{name}") == expected[:, number]).all()


def test_masks_have_the_dice_of_the_evaluation(
    command: Command, polyps: Result, exported: dict[str, Path], tmp_path: Path
) -> None:
    for site, kept in _sites(polyps):
        write_pictures(site, tmp_path / site.name)
        out = tmp_path / f"out-{site.name}"
        rows = _predict(command, exported["polyps"], tmp_path / site.name, out)
        assert (_column(rows, "aleatoric") == kept["aleatoric"].numpy()).all()
        assert (_column(rows, "epistemic") == kept["epistemic"].numpy()).all()
        for row, truth, dice in zip(rows, _truth(site), kept["dice"], strict=True):
            with Image.open(out / row["mask"]) as picture:
                mask = np.array(picture)
            for number, name in enumerate(site.classes):
                found, there = mask == number, truth == number
                score = np.float32(2 * (found & there).sum()) / np.float32(found.sum() + there.sum())
                assert score == dice[number].item()
                assert float(row[f"share_{name}"]) == found.mean()


@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_run_and_export_predict_the_same(
    command: Command, exported: dict[str, Path], kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    result: Result = request.getfixturevalue(kind)
    for site, _ in _sites(result):
        write_pictures(site, tmp_path / "pictures" / site.name)
    _predict(command, result.folder, tmp_path / "pictures", tmp_path / "run")
    _predict(command, exported[kind], tmp_path / "pictures", tmp_path / "export")
    from_run = {path.relative_to(tmp_path / "run"): path.read_bytes() for path in _files(tmp_path / "run")}
    again = {path.relative_to(tmp_path / "export"): path.read_bytes() for path in _files(tmp_path / "export")}
    assert from_run == again


@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_graphs_answer_as_the_run_did(
    exported: dict[str, Path], kind: str, request: pytest.FixtureRequest
) -> None:
    model = load_model(exported[kind])
    scripted = torch.jit.load(str(exported[kind] / "model.torchscript"))
    session = onnxruntime.InferenceSession(str(exported[kind] / "model.onnx"), providers=["CPUExecutionProvider"])
    for site, kept in _sites(request.getfixturevalue(kind)):
        images = site.images(site.ids("test"))
        said = model.predict(images)
        logits, probability = scripted(images)
        onnx_logits, onnx_probability = session.run(["logits", "probability"], {"images": images.numpy()})
        assert torch.allclose(probability, said.probability, rtol=0, atol=1e-5)
        # onnxruntime adds up means in plain float32, which shows in images that are standardised first.
        assert np.abs(onnx_probability - said.probability.numpy()).max() < 1e-4
        assert np.abs(onnx_logits - logits.numpy()).max() < 1e-4 * max(1, logits.abs().max())
        if kind == "lesions":
            assert torch.allclose(logits, kept["logits"], rtol=0, atol=1e-5)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
