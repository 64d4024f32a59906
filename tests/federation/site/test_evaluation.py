"""Statistics against straightforward computations over all samples at once."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, recall_score

from feal.evidential import aleatoric, build_loss, concentration, epistemic, expected_probability
from feal.federation.site.evaluation import evaluate
from feal.metrics import compute_metrics, find_metrics
from feal.metrics.statistics import ENERGY_BINS, ENERGY_RANGE, Statistics, compute_diagnostics
from feal.selection import SelectionContext
from feal.settings import Component, Task
from feal.testing import make_network

CLASSES = 3
SAMPLES = 17
REGIONS = {"whole": (1, 2), "core": (2,)}


def _context(task: Task, loss: str = "evidential") -> SelectionContext:
    return SelectionContext.for_reading(task=task, classes=CLASSES, loss=build_loss(Component(name=loss)))


def _data(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shape = (SAMPLES,) if task == "classification" else (SAMPLES, 32, 32)
    images = torch.rand(SAMPLES, 3, 32, 32, generator=generator)
    target = torch.randint(0, CLASSES, shape, generator=generator)
    if task == "segmentation":
        target[0] = 0  # an image without foreground
    return images, target


def _evaluate(
    task: Task, loss: str = "evidential"
) -> tuple[Statistics, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    images, target = _data(task)
    model = make_network(task, seed=1)
    with torch.no_grad():
        logits = model(images)
    result, outputs = evaluate(
        model,
        [str(index) for index in range(SAMPLES)],
        read=lambda ids: images[[int(sample) for sample in ids]],
        labels=lambda ids: target[[int(sample) for sample in ids]],
        context=_context(task, loss),
        batch_size=5,
        device=torch.device("cpu"),
        regions=REGIONS if task == "segmentation" else {},
    )
    assert result is not None
    return result, logits, target, outputs


@pytest.mark.parametrize("task", ["classification", "segmentation"])
@pytest.mark.parametrize("loss", ["evidential", "plain"])
def test_figures_equal_a_straightforward_computation(task: Task, loss: str) -> None:
    result, logits, target, _ = _evaluate(task, loss)
    prediction = logits.argmax(1)
    truth, guess = target.flatten().numpy(), prediction.flatten().numpy()
    assert result.confusion == confusion_matrix(truth, guess, labels=range(CLASSES)).tolist()
    assert result.recall == pytest.approx(recall_score(truth, guess, average=None, zero_division=0))
    pooled = {
        name: values["pooled"] for name, values in compute_metrics(find_metrics(task), {"a": result}).items()
    }
    if task == "classification":
        assert pooled["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, guess))
    assert pooled["accuracy"] == pytest.approx(np.mean(truth == guess))

    alpha = concentration(logits, squared=task == "segmentation")
    probability = expected_probability(alpha) if loss == "evidential" else logits.softmax(1)
    confidence = probability.amax(1).double().flatten().numpy()
    error = 0.0
    for low in range(15):
        inside = np.clip((confidence * 15).astype(int), 0, 14) == low
        if inside.any():
            error += inside.mean() * abs((truth == guess)[inside].mean() - confidence[inside].mean())
    assert pooled["calibration_error"] == pytest.approx(error, rel=1e-6)

    diagnosed = compute_diagnostics(task, {"a": result})
    assert diagnosed["aleatoric"] == pytest.approx(float(aleatoric(alpha).mean()))
    assert diagnosed["epistemic"] == pytest.approx(float(epistemic(alpha).mean()))
    assert diagnosed["zero_evidence"] == pytest.approx(float((logits <= 0).all(1).double().mean()))
    by_class = [(logits[:, c] > 0).double().mean().item() for c in range(CLASSES)]
    assert diagnosed["class_evidence"] == pytest.approx(by_class)


def test_dice_equals_a_loop_over_images_and_leaves_out_what_nobody_shows() -> None:
    result, logits, target, _ = _evaluate("segmentation")
    prediction = logits.argmax(1)
    for c in range(CLASSES):
        scores = []
        for truth, guess in zip(target == c, prediction == c, strict=True):
            if truth.any() or guess.any():
                scores.append(2 * float((truth & guess).sum()) / float(truth.sum() + guess.sum()))
        assert result.dice_count[c] == len(scores)
        assert result.dice[c] == pytest.approx(sum(scores))


def test_energies_are_binned_once_each() -> None:
    result, logits, _, _ = _evaluate("classification")
    energy = -torch.logsumexp(logits.double(), 1).numpy()
    expected, _ = np.histogram(energy, ENERGY_BINS, ENERGY_RANGE)
    assert result.energy == expected.tolist()


def test_without_samples_there_are_no_statistics() -> None:
    model = make_network("classification", seed=0)
    nothing = evaluate(
        model,
        [],
        read=lambda ids: torch.empty(0),
        labels=lambda ids: torch.empty(0),
        context=_context("classification"),
        batch_size=4,
        device=torch.device("cpu"),
    )
    assert nothing == (None, {})


def test_what_is_kept_of_each_sample_adds_up_to_the_statistics() -> None:
    result, logits, _, kept = _evaluate("classification")
    assert kept.keys() == {"logits"}
    assert torch.allclose(kept["logits"], logits, atol=1e-5)

    result, logits, target, kept = _evaluate("segmentation")
    assert kept["dice"].shape == (SAMPLES, CLASSES)
    assert kept["dice"].nansum(0).tolist() == pytest.approx(result.dice)
    assert (~kept["dice"].isnan()).sum(0).tolist() == result.dice_count
    for index, (name, region) in enumerate(result.regions.items()):
        assert (list(REGIONS)[index], region.count) == (name, int((~kept["region_dice"][:, index].isnan()).sum()))
        assert kept["region_dice"][:, index].nansum().item() == pytest.approx(region.dice)
        assert kept["region_hd95"][:, index].nansum().item() == pytest.approx(region.hd95)
    assert float(kept["aleatoric"].sum()) == pytest.approx(result.aleatoric)
    assert float(kept["epistemic"].sum()) == pytest.approx(result.epistemic)
    energy = -torch.logsumexp(logits.double(), 1).flatten(1).mean(1)
    assert kept["energy"].tolist() == pytest.approx(energy.tolist(), abs=1e-5)
    unseen = (target != 1).flatten(1).all(1) & (logits.argmax(1) != 1).flatten(1).all(1)
    assert torch.equal(kept["dice"][:, 1].isnan(), unseen)
