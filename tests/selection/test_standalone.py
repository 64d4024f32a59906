"""Selection on plain modules and iterables of batches."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from feal.errors import FealError
from feal.evidential import aleatoric, concentration, epistemic
from feal.selection import STRATEGIES, calibrated_uncertainty, relax
from feal.selection.standalone import select
from tests.models.test_base import Residual, Segmenter

ROLES = ("global", "local", "initial", "global_previous", "local_previous", "finetuned", "local_only")


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(30, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def _models(*, seed: int = 0) -> dict[str, nn.Module]:
    torch.manual_seed(seed)
    models: dict[str, nn.Module] = {}
    for role in ROLES:
        models[role] = Residual().eval()
        models[role].fc.weight.data.mul_(20)
    return models


@pytest.mark.parametrize(
    "strategy", [name for name in STRATEGIES.names() if "classification" in STRATEGIES.get(name).tasks]
)
def test_every_strategy_selects_distinct_images(strategy: str, images: torch.Tensor) -> None:
    loader = DataLoader(TensorDataset(images, torch.zeros(30)), batch_size=7)
    picked = select(
        strategy, loader, models=_models(), budget=8, labelled=images[:3].split(2), class_counts=[3, 1, 0, 2]
    )
    assert len(set(picked.indices)) == 8
    assert set(picked.indices) <= set(range(30))
    assert len(picked.parts["score"]) == 8


def test_feal_is_the_paper_s_formula(images: torch.Tensor) -> None:
    models = _models()
    picked = select("feal", images.split(7), models=models, budget=6, tau=0.5, n=2)
    with torch.no_grad():
        alpha_global, alpha_local = (concentration(models[role](images)) for role in ("global", "local"))
    score = calibrated_uncertainty(aleatoric(alpha_global), aleatoric(alpha_local), epistemic(alpha_global))
    x = torch.relu(models["local"].norm(models["local"].stem(images)))
    deep = nn.functional.adaptive_avg_pool2d(models["local"].block(x), 3).flatten(1).detach()
    indices, _ = relax(score, deep, 6, n=2, tau=0.5, rule="nearest")
    assert picked.indices == indices.tolist()


def test_the_order_of_batches_does_not_matter(images: torch.Tensor) -> None:
    models = _models()
    straight = select("entropy", images.split(7), models=models, budget=5).indices
    turned = select("entropy", images.flip(0).split(7), models=models, budget=5).indices
    assert [29 - index for index in turned] == straight


def test_masks() -> None:
    pool = torch.rand(9, 1, 32, 32).split(4)
    picked = select("feal", pool, models={"global": Segmenter(), "local": Segmenter()}, budget=3)
    assert len(set(picked.indices)) == 3


@pytest.mark.parametrize("strategy", ["clasp-pe", "random-foreground", "maxherding", "dropquery", "strata"])
def test_masks_by_strategies_with_a_form_for_them(strategy: str) -> None:
    pool = torch.rand(9, 1, 32, 32).split(4)
    picked = select(strategy, pool, models={"global": Segmenter(), "local": Segmenter()}, budget=3)
    assert len(set(picked.indices)) == 3


@pytest.mark.parametrize("strategy", ["clasp-pe", "random-foreground"])
def test_a_strategy_for_masks_refuses_classes(strategy: str, images: torch.Tensor) -> None:
    with pytest.raises(FealError, match="is for segmentation, not for classification"):
        select(strategy, images.split(7), models=_models(), budget=3)


@pytest.mark.parametrize(
    "strategy", ["maxherding", "uherding", "rarity-herding", "typiclust", "probcover", "mixed"]
)
def test_coverage_needs_no_labelled_images(strategy: str, images: torch.Tensor) -> None:
    assert len(select(strategy, images.split(7), models=_models(), budget=6).indices) == 6


@pytest.mark.parametrize("budget", [0, 100])
def test_budgets_at_the_edges(budget: int, images: torch.Tensor) -> None:
    assert len(select("entropy", images.split(7), models=_models(), budget=budget).indices) == min(budget, 30)


def test_an_empty_pool() -> None:
    assert select("entropy", [], models=_models(), budget=3).indices == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"strategy": "fael"}, "did you mean 'feal'"),
        ({"tua": 0.9}, "has no parameter 'tua': did you mean 'tau'"),
        ({"models": {"global": nn.Linear(2, 2)}}, "no local: pass one for each"),
        ({"class_counts": [1, 2]}, "class_counts has 2 numbers"),
    ],
)
def test_mistakes_are_named(arguments: dict, sentence: str, images: torch.Tensor) -> None:
    given = {"strategy": "feal", "models": _models(), "budget": 3, **arguments}
    with pytest.raises(FealError, match=sentence):
        select(given.pop("strategy"), images.split(7), **given)


def test_an_image_with_nan_is_named(images: torch.Tensor) -> None:
    spoiled = images.clone()
    spoiled[11] = float("nan")
    with pytest.raises(FealError, match="of image 11 is not finite"):
        select("entropy", spoiled.split(7), models=_models(), budget=3)
