"""The paper's presets run as they stand, on noise in the prepared layout: one round with their own networks."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from feal.config import load
from feal.data import PreparedWriter
from feal.experiment import start

FACTS = {
    # task, classes, channels, side, type, parameters of the network
    "fed-isic": ("classification", 8, 3, 260, "uint8", 4_017_796),
    "fed-camelyon": ("classification", 2, 3, 96, "uint8", 6_955_906),
    "fed-polyp": ("segmentation", 2, 3, 384, "uint8", 3_179_890),
    "fed-prostate": ("segmentation", 2, 1, 384, "uint16", 3_179_602),
    "fed-fundus": ("segmentation", 3, 3, 384, "uint8", 3_179_923),
    "octa-500": ("segmentation", 2, 1, 400, "uint8", 3_179_602),
}
TRAIN, TEST = 3, 2


def _write_noise(root: Path, preset: str, sites: list[str]) -> Path:
    task, classes, channels, side, dtype, _ = FACTS[preset]
    draw = np.random.default_rng(0)
    names = tuple(f"class {number}" for number in range(classes))
    shape = {"channels": channels, "height": side, "width": side, "dtype": dtype}
    with PreparedWriter(root, name=preset, task=task, classes=names, **shape) as writer:
        for site in sites:
            count = TRAIN + TEST
            images = draw.integers(0, np.iinfo(dtype).max, (count, channels, side, side)).astype(dtype)
            if task == "classification":
                labels = (np.arange(count) % classes).astype(np.int16)
            else:
                labels = draw.integers(0, classes, (count, side, side)).astype(np.uint8)
            ids, splits = [f"{number}" for number in range(count)], ["train"] * TRAIN + ["test"] * TEST
            writer.site(site).append(ids=ids, images=images, labels=labels, splits=splits)
    return root


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("preset", list(FACTS))
def test_a_preset_of_the_paper_runs(preset: str, tmp_path: Path) -> None:
    sites = load(preset, {"weights": "none"}).sites or ["alder", "birch"]
    data = _write_noise(tmp_path / "data", preset, sites)
    tiny = {"dataset": str(data), "weights": "none", "rounds": 1, "communication_rounds": 1, "budget": 2}
    settings = load(preset, tiny)
    assert settings.strategy.name == "feal"
    result = start(settings, out=tmp_path / "run")
    assert result.status == "finished"
    assert result.rounds[0].labels == dict.fromkeys(sites, 2)
    with safe_open(result.folder / "weights" / "round-001.safetensors", framework="pt") as file:
        trained = [name for name in file.keys() if name.endswith(("weight", "bias"))]  # noqa: SIM118
        assert sum(file.get_tensor(name).numel() for name in trained) == FACTS[preset][-1]
