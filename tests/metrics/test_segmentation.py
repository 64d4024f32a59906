"""Dice and HD95 against all pairs of pixels, and against MONAI."""

import warnings
from functools import partial
from itertools import product
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import binary_erosion, distance_transform_edt, gaussian_filter

from feal.evidential import EvidentialLoss
from feal.federation.site.evaluation import evaluate
from feal.metrics import compute_metrics, find_metrics
from feal.metrics.segmentation import (
    Dice,
    Hd95,
    Hd95Rule,
    score_classes,
    score_dice,
    score_hd95,
    score_regions,
)
from feal.selection import SelectionContext
from tests.statistics import make_statistics

SIDE = 9
REGIONS = {"disc": (1, 2), "cup": (2,)}


def _edge(mask: np.ndarray) -> list[tuple[int, int]]:
    """Pixels with a neighbour that is not in the mask; beyond the image nothing is."""
    height, width = mask.shape
    inside = {(y, x) for y, x in product(range(height), range(width)) if mask[y, x]}
    beside = ((0, 1), (1, 0), (0, -1), (-1, 0))
    return sorted((y, x) for y, x in inside if any((y + dy, x + dx) not in inside for dy, dx in beside))


def _brute_hd95(one: np.ndarray, other: np.ndarray, rule: str = "largest") -> float:
    a, b = _edge(one), _edge(other)
    if not a and not b:
        return np.nan
    if not a or not b:
        return float(np.sqrt(one.shape[0] ** 2 + one.shape[1] ** 2))
    distances = np.array([[np.sqrt((y - v) ** 2 + (x - u) ** 2) for v, u in b] for y, x in a])
    there, back = distances.min(1), distances.min(0)
    if rule == "pooled":
        return float(np.quantile(np.hstack([there, back]), 0.95))
    return max(np.quantile(there, 0.95), np.quantile(back, 0.95))


def _brute_dice(one: np.ndarray, other: np.ndarray) -> float:
    a, b = ({tuple(place) for place in np.argwhere(mask)} for mask in (one, other))
    return 2 * len(a & b) / (len(a) + len(b)) if a or b else np.nan


def _masks() -> dict[str, np.ndarray]:
    named = {
        name: np.zeros((SIDE, SIDE + 3), dtype=bool) for name in ("empty", "pixel", "corner", "border", "block")
    }
    named["pixel"][4, 5] = True
    named["corner"][0, -1] = True
    named["border"][0] = named["border"][:, 0] = True
    named["block"][2:7, 3:9] = True
    named["full"] = np.ones((SIDE, SIDE + 3), dtype=bool)
    named["noise"] = np.random.default_rng(0).random((SIDE, SIDE + 3)) < 0.3
    named["blob"] = gaussian_filter(np.random.default_rng(1).standard_normal((SIDE, SIDE + 3)), 2) > 0
    return named


MASKS = _masks()


@pytest.mark.parametrize(("one", "other"), list(product(MASKS, MASKS)), ids=lambda name: name)
def test_each_pair_of_masks_scores_as_by_brute_force(one: str, other: str) -> None:
    truth, found = (torch.from_numpy(MASKS[name])[None] for name in (one, other))
    assert score_dice(truth, found).item() == pytest.approx(_brute_dice(MASKS[one], MASKS[other]), nan_ok=True)
    for rule in get_args(Hd95Rule):
        expected = _brute_hd95(MASKS[one], MASKS[other], rule)
        assert score_hd95(truth, found, rule=rule).item() == pytest.approx(expected, nan_ok=True)


@settings(max_examples=50)
@given(*[arrays(bool, (6, 7)) for _ in range(2)])
def test_any_pair_of_masks_scores_as_by_brute_force(one: np.ndarray, other: np.ndarray) -> None:
    truth, found = torch.from_numpy(one)[None], torch.from_numpy(other)[None]
    assert score_dice(truth, found).item() == pytest.approx(_brute_dice(one, other), nan_ok=True)
    for rule in get_args(Hd95Rule):
        score = score_hd95(truth, found, rule=rule).item()
        assert score == pytest.approx(_brute_hd95(one, other, rule), nan_ok=True)
        assert score == pytest.approx(score_hd95(found, truth, rule=rule).item(), nan_ok=True)


@pytest.mark.slow
def test_hd95_is_that_of_monai() -> None:
    from monai.metrics import compute_hausdorff_distance

    draw = np.random.default_rng(0)
    fields = gaussian_filter(draw.standard_normal((16, 40, 56)), (0, 4, 4)) > 0.02
    truth, found = (torch.from_numpy(part) for part in (fields[:8], fields[8:]))
    assert bool(truth.flatten(1).any(1).all() and found.flatten(1).any(1).all())
    with warnings.catch_warnings():
        # MONAI passes an argument that it has deprecated itself.
        warnings.simplefilter("ignore", FutureWarning)
        expected = compute_hausdorff_distance(
            found[:, None], truth[:, None], include_background=True, percentile=95
        )
    assert score_hd95(truth, found).tolist() == pytest.approx(expected.squeeze(1).tolist(), rel=1e-6)


def test_both_rules_of_hd95_on_blobs_by_distance_transforms() -> None:
    """Where a prediction is roughly right, the larger percentile is about 1.2 times the one of all distances."""
    ratios = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        field, noise = (gaussian_filter(draw.standard_normal((64, 64)), 6) for _ in range(2))
        one, other = field > field.std(), field + noise / 2 > field.std()
        edges = [mask & ~binary_erosion(mask) for mask in (one, other)]
        there, back = distance_transform_edt(~edges[1])[edges[0]], distance_transform_edt(~edges[0])[edges[1]]
        masks = [torch.from_numpy(mask)[None] for mask in (one, other)]
        largest, pooled = (score_hd95(*masks, rule=rule).item() for rule in get_args(Hd95Rule))
        assert largest == pytest.approx(max(np.percentile(there, 95), np.percentile(back, 95)))
        assert pooled == pytest.approx(np.percentile(np.hstack([there, back]), 95))
        ratios.append(largest / pooled)
    assert min(ratios) >= 1
    assert np.mean(ratios) == pytest.approx(1.2, abs=0.05)


def test_the_larger_direction_counts() -> None:
    """Not the percentile of all distances together, among which the few from the smaller mask would be lost."""
    truth, found = torch.zeros(1, 1, 300, dtype=torch.bool), torch.zeros(1, 1, 300, dtype=torch.bool)
    truth[..., [0, 1, 2, 3, 4, 299]] = True
    found[..., :100] = True
    there, back = [0, 0, 0, 0, 0, 200], [max(0, x - 4) for x in range(100)]
    assert score_hd95(truth, found).item() == pytest.approx(np.percentile(there, 95))
    assert np.percentile(there, 95) > np.percentile(there + back, 95) + 50


@settings(max_examples=25)
@given(st.integers(0, 2**16))
def test_regions_of_three_classes_are_unions(seed: int) -> None:
    draw = np.random.default_rng(seed)
    truth, found = (torch.from_numpy(draw.integers(0, 3, (3, 6, 5)).astype(np.uint8)) for _ in range(2))
    truth[0], found[1] = 0, 1  # no foreground at all, and no cup
    overlap, distance = score_regions(truth, found, REGIONS)
    assert overlap.shape == distance.shape == (3, 2)
    for image, (index, members) in product(range(3), enumerate(REGIONS.values())):
        masks = [np.isin(classes[image].numpy(), members) for classes in (truth, found)]
        assert overlap[image, index].item() == pytest.approx(_brute_dice(*masks), nan_ok=True)
        assert distance[image, index].item() == pytest.approx(_brute_hd95(*masks), nan_ok=True)
    assert torch.equal(overlap[:, 1].nan_to_num(-1), score_classes(truth, found, classes=3)[:, 2].nan_to_num(-1))


def test_without_regions_there_is_nothing_to_score() -> None:
    overlap, distance = score_regions(torch.zeros(2, 4, 4), torch.zeros(2, 4, 4), {})
    assert overlap.shape == distance.shape == (2, 0)


class _Echo(torch.nn.Module):
    """Draws a mask from its image's first channel."""

    def outputs(self, images: torch.Tensor) -> object:
        from feal.models import Output

        logits = torch.nn.functional.one_hot(images[:, 0].long(), 3).permute(0, 3, 1, 2).float()
        nothing = torch.empty(len(images), 0)
        return Output(logits=logits, features=nothing, deep=nothing, head_input=nothing)


@pytest.mark.parametrize("rule", get_args(Hd95Rule))
def test_pooled_figures_are_those_of_one_big_site(rule: Hd95Rule) -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 3, (11, 1, 8, 8), generator=draw).float()
    truth = torch.randint(0, 3, (11, 8, 8), generator=draw)
    truth[2], images[5] = 0, 0
    metrics = find_metrics("segmentation", params={"hd95": {"rule": rule}})
    context = SelectionContext.for_reading(task="segmentation", classes=3, loss=EvidentialLoss())

    def figures(*sites: range) -> dict[str, dict[str, object]]:
        by_site = {
            f"site-{number}": evaluate(
                _Echo(),
                [str(index) for index in indices],
                read=lambda ids: images[[int(sample) for sample in ids]],
                labels=lambda ids: truth[[int(sample) for sample in ids]],
                context=context,
                batch_size=2,
                device=torch.device("cpu"),
                regions=REGIONS,
                metrics=metrics,
            )[0]
            for number, indices in enumerate(sites)
        }
        return compute_metrics(metrics, by_site)

    apart, together = figures(range(3), range(3, 11)), figures(range(11))
    assert apart.keys() == together.keys() >= {"dice", "hd95", "dice_disc", "hd95_disc", "dice_cup", "hd95_cup"}
    for name, figure in together.items():
        assert apart[name]["pooled"] == pytest.approx(figure["pooled"])
        assert figure["pooled"] == figure["mean"]
    guess = images[:, 0].numpy()
    for score, brute in (("dice", _brute_dice), ("hd95", partial(_brute_hd95, rule=rule))):
        means = []
        for name, members in REGIONS.items():
            pairs = zip(np.isin(truth.numpy(), members), np.isin(guess, members), strict=True)
            means.append(np.nanmean([brute(*pair) for pair in pairs]))
            assert together[f"{score}_{name}"]["pooled"] == pytest.approx(means[-1])
        assert together[score]["pooled"] == pytest.approx(np.mean(means))


def _region(dice: float, hd95: float, count: int) -> dict[str, float]:
    return {"dice": dice, "hd95": hd95, "count": count}


def test_dice_and_hd95_are_means_over_the_regions_that_are_there() -> None:
    regions = {"disc": _region(3.0, 8.0, 4), "cup": _region(0.5, 9.0, 2), "vessel": _region(0.0, 0.0, 0)}
    statistics = make_statistics([[1]], dice=[9.0, 3.0, 0.0], dice_count=[9, 4, 0], regions=regions)
    assert Dice().compute(statistics, {}) == pytest.approx((0.75 + 0.25) / 2)
    assert Hd95().compute(statistics, {}) == pytest.approx((2.0 + 4.5) / 2)
    assert statistics.class_dice == [1.0, 0.75, None]
    values = compute_metrics(find_metrics("segmentation"), {"a": statistics})
    assert list(values)[:4] == ["dice", "hd95", "accuracy", "calibration_error"]
    assert values["dice_disc"]["pooled"] == 0.75
    assert values["hd95_cup"]["sites"] == {"a": 4.5}
    assert values["dice_vessel"] == {"mean": None, "pooled": None, "sites": {"a": None}}


def test_a_single_region_is_recorded_once() -> None:
    statistics = make_statistics([[1]], regions={"polyp": _region(1.0, 2.0, 2)})
    values = compute_metrics(find_metrics("segmentation"), {"a": statistics})
    assert list(values) == ["dice", "hd95", "accuracy", "calibration_error"]
