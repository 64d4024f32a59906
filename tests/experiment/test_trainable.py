"""Runs that train a part of the network on what a frozen trunk made of the images."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from feal.data import locate, open_prepared
from feal.experiment import Result, resume, start
from feal.fileio import read_tensors
from feal.inference import export_model, load_model
from feal.rundir.journal import read_settings
from feal.selection import STRATEGIES
from tests.frozen import frozen, write_weights
from tests.rebuilding import rebuilt_sites
from tests.runs import differences, fingerprint

pytestmark = pytest.mark.slow

LONGER = {"communication_rounds": 4, "budget": 12}
each_part = pytest.mark.parametrize("part", ["tail", "head"])


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "weights.safetensors")


@pytest.fixture(scope="module")
def runs(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """A run of each part, long enough that its answers differ from image to image."""
    return {
        part: start(frozen(weights, part, **LONGER), out=tmp_path_factory.mktemp(part) / "run")
        for part in ("tail", "head")
    }


def trunks(result: Result) -> Path:
    root = _root(result)
    return root.with_name(f"{root.name}-trunks")


def _root(result: Result) -> Path:
    settings = read_settings(result.folder)
    return locate(settings.dataset)


@each_part
def test_only_the_part_travels_and_is_kept(runs: dict[str, Result], part: str, weights: Path) -> None:
    names = {"tail": {"blocks.12", "blocks.13", "classifier"}, "head": {"classifier"}}[part]
    for path in (runs[part].folder / "weights").glob("*.safetensors"):
        assert {name.rpartition(".")[0] for name in load_file(path)} == names
    for path in runs[part].folder.glob("sites/*/models/local-*.safetensors"):
        assert {name.rpartition(".")[0] for name in read_tensors(path, prefix="weights/")} == names
    if part == "tail":
        initial = load_file(runs[part].folder / "weights" / "initial.safetensors")
        assert torch.equal(initial["blocks.12.weight"], load_file(weights)["blocks.12.weight"])


@each_part
def test_computing_the_outputs_is_timed(runs: dict[str, Result], part: str) -> None:
    assert runs[part].rounds[0].seconds["cache"] > 0


@pytest.mark.parametrize("part", ["head", pytest.param("tail", marks=pytest.mark.slow)])
def test_the_bits_are_the_same_with_and_without_outputs(
    runs: dict[str, Result], part: str, weights: Path, tmp_path: Path
) -> None:
    expected = fingerprint(runs[part].folder)
    shutil.rmtree(trunks(runs[part]))
    anew = start(frozen(weights, part, **LONGER), out=tmp_path / "anew")
    assert differences(expected, fingerprint(anew.folder)) == []


def test_seeds_and_strategies_share_the_outputs(weights: Path, tmp_path: Path) -> None:
    here = {"data": str(tmp_path / "data")}
    files = []
    for seed, strategy in ((0, "random"), (5, "entropy")):
        start(frozen(weights, "head", seed=seed, strategy=strategy, **here), out=tmp_path / strategy)
        files.append({path: path.stat().st_mtime_ns for path in tmp_path.glob("data/*-trunks/*.npy")})
    assert files[0] == files[1]
    assert len(files[0]) == 2


@each_part
def test_the_whole_network_says_of_the_test_images_what_the_run_said(
    runs: dict[str, Result], part: str, tmp_path: Path
) -> None:
    result = runs[part]
    model = load_model(result.folder)
    export_model(model, tmp_path / "export")
    exported = load_model(tmp_path / "export")
    data = open_prepared(_root(result))
    for name in data.sites:
        site = data.site(name)
        kept = load_file(result.folder / "sites" / name / "diagnostics" / "evaluation-002.safetensors")
        images = site.images(site.ids("test"))
        probability = model.predict(images).probability
        torch.testing.assert_close(probability, model.context.probability(kept["logits"]), rtol=1e-4, atol=1e-6)
        assert torch.equal(probability, exported.predict(images).probability)
        assert probability.std(0).max() > 1e-3


def test_an_export_tells_no_path(runs: dict[str, Result], weights: Path, tmp_path: Path) -> None:
    export_model(load_model(runs["head"].folder), tmp_path / "export", format="none")
    facts = (tmp_path / "export" / "model.json").read_text()
    assert str(weights.parent) not in facts
    assert json.loads(facts)["origin"]["settings"]["weights"] == weights.name


def test_a_run_without_its_weights_goes_on_from_the_outputs(weights: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.safetensors"
    shutil.copy(weights, own)
    whole = start(frozen(own, "head", rounds=3), out=tmp_path / "whole")
    short = start(frozen(own, "head", rounds=2), out=tmp_path / "short")
    own.unlink()
    longer = resume(short.folder, settings=read_settings(whole.folder))
    assert differences(fingerprint(whole.folder), fingerprint(longer.folder)) == []


CLASSIFYING = [name for name in STRATEGIES.names() if "classification" in STRATEGIES.get(name).tasks]


@pytest.mark.parametrize(
    ("strategy", "part"),
    [("feal", "head")]
    + [(strategy, "tail") for strategy in CLASSIFYING]
    + [
        pytest.param(strategy, "head", marks=pytest.mark.nightly) for strategy in CLASSIFYING if strategy != "feal"
    ],
)
def test_every_strategy_works_on_a_part(strategy: str, part: str, weights: Path, tmp_path: Path) -> None:
    changes = {"strategy.local": "local_only"} if strategy == "logo" else {}
    result = start(frozen(weights, part, strategy=strategy, **changes), out=tmp_path / "run")
    assert result.status == "finished"
    with rebuilt_sites():
        rebuilt = start(frozen(weights, part, strategy=strategy, **changes), out=tmp_path / "rebuilt")
    assert differences(fingerprint(result.folder), fingerprint(rebuilt.folder)) == []
