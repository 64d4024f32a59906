"""One round against a straightforward implementation: weights and images by a formula, everything else by hand.

Nothing of the package computes the expected numbers: the networks are written as functions of named tensors, the
losses with torch's own lgamma and digamma, Adam, FedAvg, the uncertainties and the relaxation as their papers have
them.
"""

from __future__ import annotations

import csv
import math
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import digamma, gammaln
from torch.nn import functional as F

from feal.config import load
from feal.data import PreparedWriter
from feal.experiment import start
from feal.federation.callbacks import NullCallback
from feal.models import build_model
from feal.rundir.records import Round
from tests.models.formula import waves
from tests.runs import events

SITES, TRAIN, SIDE, STEPS, BUDGET, LR, DECAY, LAMBDA, NEIGHBOURS, TAU = (
    ("a", "b"),
    20,
    64,
    3,
    8,
    1e-4,
    1e-2,
    0.1,
    2,
    0.2,
)
Tensors = dict[str, torch.Tensor]
Forward = Callable[[Tensors, torch.Tensor, float], tuple[torch.Tensor, torch.Tensor]]
"""(tensors, images, momentum of running statistics, 0 in evaluation) to (logits, deep maps)."""


def _unet(w: Tensors, images: torch.Tensor, momentum: float) -> tuple[torch.Tensor, torch.Tensor]:
    def conv(name: str, maps: torch.Tensor) -> torch.Tensor:
        kernel = w[f"{name}.0.weight"]
        maps = F.conv2d(maps, kernel, w[f"{name}.0.bias"], padding=kernel.shape[-1] // 2)
        mean, variance = maps.mean((2, 3), keepdim=True), maps.var((2, 3), unbiased=False, keepdim=True)
        return (maps - mean) / (variance + 1e-5).sqrt()

    maps, skips = images, []
    for level in range(5):
        maps = F.max_pool2d(maps, 2) if level else maps
        maps = conv(f"encoder.{level}.first", maps)
        maps = conv(f"encoder.{level}.second", maps).relu()
        maps = conv(f"encoder.{level}.third", maps).relu()
        skips.append(maps)
    for level in range(4):
        maps = conv(f"decoder.{level}.reduce", maps).relu() if level else maps
        maps = maps.repeat_interleave(2, 2).repeat_interleave(2, 3)
        maps = conv(f"decoder.{level}.up", maps).relu()
        maps = conv(f"decoder.{level}.join", torch.cat([skips[3 - level], maps], 1)).relu()
    return F.conv2d(maps, w["last.weight"], w["last.bias"]), skips[-1]


def _b0(w: Tensors, images: torch.Tensor, momentum: float) -> tuple[torch.Tensor, torch.Tensor]:
    def conv(name: str, maps: torch.Tensor, stride: int = 1) -> torch.Tensor:
        kernel = w[f"{name}.weight"]
        groups = maps.shape[1] // kernel.shape[1]
        return F.conv2d(maps, kernel, w.get(f"{name}.bias"), stride, kernel.shape[-1] // 2, groups=groups)

    def norm(name: str, maps: torch.Tensor) -> torch.Tensor:
        mean, variance = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        if momentum:
            count = maps.numel() / maps.shape[1]
            mean, variance = maps.mean((0, 2, 3)), maps.var((0, 2, 3), unbiased=False)
            w[f"{name}.running_mean"] = (1 - momentum) * w[f"{name}.running_mean"] + momentum * mean.detach()
            unbiased = variance.detach() * count / (count - 1)
            w[f"{name}.running_var"] = (1 - momentum) * w[f"{name}.running_var"] + momentum * unbiased
            w[f"{name}.num_batches_tracked"] = w[f"{name}.num_batches_tracked"] + 1
        maps = (maps - mean.reshape(-1, 1, 1)) / (variance.reshape(-1, 1, 1) + 1e-5).sqrt()
        return maps * w[f"{name}.weight"].reshape(-1, 1, 1) + w[f"{name}.bias"].reshape(-1, 1, 1)

    def excite(name: str, maps: torch.Tensor) -> torch.Tensor:
        reduced = F.silu(conv(f"{name}.conv_reduce", maps.mean((2, 3), keepdim=True)))
        return maps * conv(f"{name}.conv_expand", reduced).sigmoid()

    maps, deep = F.silu(norm("bn1", conv("conv_stem", images, 2))), images
    for stage, (repeats, stride) in enumerate(((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))):
        for repeat in range(repeats):
            at, before, step = f"blocks.{stage}.{repeat}", maps, stride if repeat == 0 else 1
            if stage == 0:
                maps = F.silu(norm(f"{at}.bn1", conv(f"{at}.conv_dw", maps)))
                maps = norm(f"{at}.bn2", conv(f"{at}.conv_pw", excite(f"{at}.se", maps)))
                continue
            maps = F.silu(norm(f"{at}.bn1", conv(f"{at}.conv_pw", maps)))
            maps = F.silu(norm(f"{at}.bn2", conv(f"{at}.conv_dw", maps, step)))
            maps = norm(f"{at}.bn3", conv(f"{at}.conv_pwl", excite(f"{at}.se", maps)))
            maps = maps + before if repeat else maps
        deep = maps if stage == 4 else deep
    maps = F.silu(norm("bn2", conv("conv_head", maps)))
    return F.linear(maps.mean((2, 3)), w["classifier.weight"], w["classifier.bias"]), deep


def _kl_to_uniform(alpha: torch.Tensor) -> torch.Tensor:
    total, classes = alpha.sum(1), alpha.shape[1]
    constant = torch.lgamma(total) - torch.lgamma(alpha).sum(1) - math.lgamma(classes)
    return constant + ((alpha - 1) * (torch.digamma(alpha) - torch.digamma(total).unsqueeze(1))).sum(1)


def _loss(logits: torch.Tensor, target: torch.Tensor, step: int, prior: torch.Tensor) -> torch.Tensor:
    """Evidential cross entropy weighted by 2 - prior, or evidential Dice of squared parameters; regularised."""
    logits, classes = logits.double(), logits.shape[1]
    alpha = logits.relu() + 1
    truth = F.one_hot(target, classes).movedim(-1, 1).double()
    if logits.dim() == 4:
        alpha = alpha**2
        total = alpha.sum(1, keepdim=True)
        p = alpha / total
        over = (0, 2, 3)
        below = (truth**2).sum(over) + (p**2).sum(over) + (p * (1 - p) / (total + 1)).sum(over)
        task = 1 - ((2 * (truth * p).sum(over) + 1e-5) / (below + 1e-5)).mean()
    else:
        total = alpha.sum(1, keepdim=True)
        each = torch.digamma(total.squeeze(1)) - torch.digamma((alpha * truth).sum(1))
        task = ((2 - prior[target]) * each).mean()
    wrong = truth + (1 - truth) * alpha
    correct = classes / total.detach().squeeze(1) * (logits * truth).sum(1)
    return task + LAMBDA * (min(1, step / 10) * _kl_to_uniform(wrong) - correct).mean()


class _Adam:
    """Adam as published, with weight decay added to the gradient."""

    def __init__(self) -> None:
        self.first: Tensors = {}
        self.second: Tensors = {}
        self.steps = 0

    def step(self, weights: Tensors, gradients: Mapping[str, torch.Tensor], lr: float) -> None:
        self.steps += 1
        for name, gradient in gradients.items():
            gradient = gradient + DECAY * weights[name]
            self.first[name] = 0.9 * self.first.get(name, torch.zeros_like(gradient)) + 0.1 * gradient
            self.second[name] = 0.999 * self.second.get(name, torch.zeros_like(gradient)) + 0.001 * gradient**2
            mean = self.first[name] / (1 - 0.9**self.steps)
            deviation = (self.second[name] / (1 - 0.999**self.steps)).sqrt()
            weights[name] = weights[name].detach() - lr * mean / (deviation + 1e-8)


def _uncertainties(logits: np.ndarray, squared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Aleatoric and epistemic of logits [n, C, ...], pixel means."""
    alpha = np.maximum(logits.astype(np.float64), 0) + 1
    alpha = alpha**2 if squared else alpha
    total = alpha.sum(1)
    whole = total[:, None]
    aleatoric = (alpha / whole * (digamma(whole + 1) - digamma(alpha + 1))).sum(1)
    epistemic = gammaln(alpha).sum(1) - gammaln(total)
    epistemic -= ((alpha - 1) * (digamma(alpha) - digamma(whole))).sum(1)
    return tuple(values.reshape(len(logits), -1).mean(1) for values in (aleatoric, epistemic))


def _relax(score: np.ndarray, deep: np.ndarray, budget: int) -> list[int]:
    """Accept by descending score unless one of the n nearest of n neighbours or more is accepted; then fill up."""
    unit = deep / np.linalg.norm(deep, axis=1, keepdims=True)
    order = sorted(range(len(score)), key=lambda row: (-score[row], row))
    accepted: list[int] = []
    for row in order:
        similarity = unit @ unit[row]
        near = [other for other in range(len(score)) if other != row and similarity[other] >= TAU]
        near = sorted(near, key=lambda other: (-similarity[other], other))[:NEIGHBOURS]
        if len(accepted) < budget and (len(near) < NEIGHBOURS or not set(near) & set(accepted)):
            accepted.append(row)
    return (accepted + [row for row in order if row not in accepted])[:budget]


def _noise(number: int, *shape: int) -> np.ndarray:
    """Numbers from -1 to 1 without a pattern: the digits of a sine far behind its point."""
    k = np.arange(math.prod(shape), dtype=np.float64)
    return (2 * np.modf(np.abs(np.sin(12.9898 * (k + 1) + 78.233 * number)) * 43758.5453)[0] - 1).reshape(shape)


CASES: dict[str, tuple[str, dict[str, object], int, Forward]] = {
    "segmentation": ("unet", {"channels": 4}, 2, _unet),
    "classification": ("efficientnet-b0", {}, 3, _b0),
}


def _write_data(root: Path, task: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    count = len(SITES) * (TRAIN + 2)
    tints = np.linspace(0.4, 1, count).reshape(-1, 1, 1, 1)
    images = ((0.7 * waves(count, 3, SIDE, SIDE).numpy() + 0.3 * _noise(99, count, 3, SIDE, SIDE)) * tints).clip(
        0, 1
    )
    images = (255 * images).round().astype(np.uint8)
    if task == "classification":
        labels = (np.arange(count) % classes).astype(np.int16)
    else:
        labels = (images.mean(1) > images.mean((1, 2, 3)).reshape(-1, 1, 1)).astype(np.uint8)
    names = tuple(f"class {number}" for number in range(classes))
    with PreparedWriter(
        root, name="waves", task=task, classes=names, channels=3, height=SIDE, width=SIDE, dtype="uint8"
    ) as writer:
        for number, site in enumerate(SITES):
            part = slice(number * (TRAIN + 2), (number + 1) * (TRAIN + 2))
            ids = [f"{index:02}" for index in range(TRAIN + 2)]
            splits = ["train"] * TRAIN + ["test"] * 2
            writer.site(site).append(ids=ids, images=images[part], labels=labels[part], splits=splits)
    return images.reshape(len(SITES), -1, 3, SIDE, SIDE), labels.reshape(len(SITES), TRAIN + 2, *labels.shape[1:])


def _formula_weights(name: str, params: dict[str, object], task: str, classes: int) -> Tensors:
    shape = {"task": task, "classes": classes, "channels": 3, "height": SIDE, "width": SIDE}
    weights = {
        key: tensor.clone() for key, tensor in build_model(name, **shape, params=params).state_dict().items()
    }
    for number, tensor in enumerate(weights.values()):
        if tensor.dim() > 1:
            scale = math.sqrt(6 / math.prod(tensor.shape[1:]))
            tensor.copy_(scale * torch.from_numpy(_noise(number, *tensor.shape)))
    return weights


class _LocalModels(NullCallback):
    """Keeps the local models of the first round, and ends the run there: its selection is made."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.local: dict[str, Tensors] = {}

    def on_round(self, record: Round) -> None:
        if record.round == 1:
            for site in SITES:
                (path,) = (self.run / "sites" / site / "models").glob("local-*.safetensors")
                kept = {tuple(name.split("/")): tensor.clone() for name, tensor in load_file(path).items()}
                self.local[site] = {name: tensor for (part, name), tensor in kept.items() if part == "weights"}
            raise KeyboardInterrupt


@pytest.mark.parametrize("task", list(CASES))
def test_losses_scores_and_selections_are_those_of_the_formulas(task: str, tmp_path: Path) -> None:
    model, params, classes, forward = CASES[task]
    images, labels = _write_data(tmp_path / "data", task, classes)
    pixels = torch.from_numpy(images.astype(np.float32) / 255)
    weights = _formula_weights(model, params, task, classes)
    # Statistics of the images: with those of a new network, 0 and 1, its outputs would be constant.
    forward(weights, pixels.flatten(0, 1), 1.0)
    save_file(weights, tmp_path / "weights.safetensors")
    settings = load(
        "demo",
        {
            "dataset": str(tmp_path / "data"),
            "model": {"name": model, **params},
            "weights": str(tmp_path / "weights.safetensors"),
            "strategy": {"name": "feal", "n": NEIGHBOURS, "tau": TAU},
            "loss": {"name": "evidential", "lambda": LAMBDA, "annealing": 10, "class_weight": "prior"},
            "training": {"lr": LR, "weight_decay": DECAY, "batch_size": 64, "local_epochs": 1, "schedule": "half"},
            "rounds": 2,
            "communication_rounds": STEPS,
            "budget": BUDGET,
        },
    )
    keeper = _LocalModels(tmp_path / "run")
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        start(settings, out=run, callback=keeper)

    first = {site: _labelled(run, site, round=1) for site in SITES}
    steps = [event for event in events(run, "step") if event["round"] == 1]
    adam = {site: _Adam() for site in SITES}
    local: dict[str, Tensors] = {}
    for step in range(STEPS):
        for number, site in enumerate(SITES):
            target = torch.from_numpy(labels[number, first[site]].astype(np.int64))
            counts = torch.bincount(target.flatten(), minlength=classes).double()
            copy = {name: tensor.clone() for name, tensor in weights.items()}
            trained = [name for name in copy if name.endswith(("weight", "bias"))]
            leaves = {name: copy[name].requires_grad_() for name in trained}
            copy.update(leaves)
            loss = _loss(forward(copy, pixels[number, first[site]], 0.1)[0], target, step, counts / counts.sum())
            assert steps[step]["loss"][site] == pytest.approx(loss.item(), rel=5e-4), (step, site)
            gradients = dict(zip(trained, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            adam[site].step(copy, gradients, LR if 2 * step < STEPS else LR / 10)
            local[site] = {name: tensor.detach() for name, tensor in copy.items()}
        share = {site: len(first[site]) / sum(map(len, first.values())) for site in SITES}
        weights = {
            name: sum(share[site] * local[site][name].double() for site in SITES).float() for name in weights
        }

    found = load_file(run / "weights" / "round-001.safetensors")
    _assert_close(found, weights)
    passed_over = 0
    for number, site in enumerate(SITES):
        pool = [row for row in range(TRAIN) if row not in first[site]]
        # Scored by the run's own weights: three steps of rounding must not decide between two near scores.
        with torch.no_grad():
            everywhere, _ = forward(found, pixels[number, pool], 0)
            here, maps = forward(keeper.local[site], pixels[number, pool], 0)
        squared = task == "segmentation"
        aleatoric, epistemic = _uncertainties(everywhere.numpy(), squared)
        span = epistemic.max() - epistemic.min()
        score = (aleatoric + _uncertainties(here.numpy(), squared)[0]) * (epistemic - epistemic.min()) / span
        expected = _relax(score, F.adaptive_avg_pool2d(maps, 3).flatten(1).double().numpy(), BUDGET)
        with (run / "sites" / site / "selections" / "round-002.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [float(row["score"]) for row in rows] == pytest.approx(score[expected].tolist(), rel=1e-3, abs=1e-4)
        for row, wanted in zip(rows, expected, strict=True):
            chosen = pool.index(int(row["sample"]))  # another only where rounding decides between two scores
            assert chosen == wanted or score[chosen] == pytest.approx(score[wanted], rel=1e-3)
        passed_over += expected != sorted(range(len(score)), key=lambda row: -score[row])[:BUDGET]
    assert passed_over


def _assert_close(found: Tensors, expected: Tensors) -> None:
    """Equal but for rounding; Adam's first steps are signs, which rounding turns where a gradient is nearly zero.

    So vectors are left out but for variances: the bias before a norm has no gradient at all.
    """
    for name, tensor in expected.items():
        if tensor.dim() > 1 or name.endswith("running_var"):
            difference, size = (found[name] - tensor).abs(), float(tensor.abs().max())
            assert float(difference.max()) <= 2.5 * LR + 1e-3 * size, name
            assert float(difference.median()) <= 1e-2 * LR + 1e-4 * size, name


def _labelled(run: Path, site: str, *, round: int) -> list[int]:
    connection = sqlite3.connect(run / "sites" / site / "site.sqlite")
    rows = connection.execute("SELECT sample FROM labels WHERE round = ?", (round,)).fetchall()
    connection.close()
    return sorted(int(sample) for (sample,) in rows)
