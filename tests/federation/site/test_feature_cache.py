"""Outputs of a trunk: the same whoever computes them, shared, and never taken when damaged."""

import hashlib
import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from feal.data import PreparedSet, open_prepared
from feal.errors import FealError
from feal.federation.site import feature_cache as trunk_module
from feal.federation.site.feature_cache import (
    MAX_VIEWS,
    CachedFeatures,
    TrunkSpec,
    open_features,
    view_images,
    view_mask,
)
from feal.federation.site.training import Images
from feal.fileio import lock_file
from feal.models import build_initial_model
from feal.settings import Settings, Transforms
from feal.tensors import hash_tensors, use_threads
from tests.frozen import write_weights
from tests.prepared import write_prepared

CPU = torch.device("cpu")
LABELS = torch.tensor([2, 0, 1, 1])


def open_site(data: PreparedSet, settings: Settings) -> CachedFeatures:
    site = data.site("alder")
    read = Images(site, settings.transforms, device=CPU).read
    return open_features(data, site, TrunkSpec.from_settings(settings, device=CPU), read=read)


class Bench:
    """Prepared data, a file of weights, and the outputs of one site."""

    def __init__(
        self, folder: Path, *, part: str = "tail", samples: int = 30, model: str = "tiny-cnn", **changes: object
    ) -> None:
        self.data = open_prepared(write_prepared(folder / "data", samples=samples))
        self.site = self.data.site("alder")
        weights = write_weights(folder / "weights.safetensors")
        self.settings = Settings(
            dataset="blocks",
            model=model,
            weights=str(weights),
            weights_digest=hash_tensors(load_file(weights)),
            training={"trainable": part, **changes},
        )

    def open(self, **changes: object) -> np.ndarray:
        return np.array(self.inputs(**changes).features.array)

    def inputs(self, **changes: object) -> CachedFeatures:
        return open_site(self.data, self.settings.model_copy(update=changes))

    def expect(self, *, views: int) -> np.ndarray:
        """What torch computes of all images at once."""
        size = {"classes": 3, "channels": 3, "height": 32, "width": 32}
        whole = build_initial_model(
            self.settings.model.name, weights=self.settings.weights, task="classification", **size
        ).eval()
        images = Images(self.site, Transforms(), device=CPU).read(np.arange(len(self.site)))
        part = self.settings.training.trainable
        with torch.no_grad():
            outputs = [whole.run_trunk(view_images(images, view), part=part) for view in range(views)]
        return torch.stack(outputs, dim=1).flatten(0, 1).numpy()

    @property
    def facts(self) -> dict[str, object]:
        return json.loads(self.files[0].with_suffix(".json").read_text())

    @property
    def files(self) -> list[Path]:
        return sorted((self.data.root.parent / "data-trunks").glob("*.npy"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("part", ["tail", "head"])
def test_they_are_what_the_trunk_makes_of_every_view_in_order(part: str, tmp_path: Path) -> None:
    bench = Bench(tmp_path, part=part, views=5)
    found = bench.open()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, bench.expect(views=5), rtol=1e-5, atol=1e-5)
    assert bench.facts["engine"] == "onnxruntime"


OWN = """
import torch
from feal.models.tiny_cnn import TinyCNN

class Own(TinyCNN):
    def run_lower(self, images):
        maps, late = super().run_lower(images)
        return torch.digamma(1 + maps), late
"""


@pytest.mark.parametrize("part", ["tail", "head"])
def test_a_network_that_onnx_cannot_hold_is_run_by_torch_and_said_once(part: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    bench = Bench(tmp_path, part=part, model=f"{tmp_path / 'own.py'}:Own")
    with pytest.warns(UserWarning, match=r"as ONNX .* The trunk of .*own.py:Own is run by torch") as said:
        found = bench.open()
    assert np.array_equal(found, bench.expect(views=4))
    assert bench.facts["engine"] == "torch"
    assert len(said) == 1
    bench.open()


def test_a_crop_of_the_centre_is_what_the_trunk_sees(bench: Bench) -> None:
    whole, centre = bench.open(), Transforms(crop=16, crop_rule="centre")
    cropped = bench.open(transforms=centre)
    assert len(bench.files) == 2
    images = Images(bench.site, Transforms(), device=CPU).read(np.arange(30))[..., 8:24, 8:24]
    assert torch.equal(Images(bench.site, centre, device=CPU).read(np.arange(30)), images)
    assert not np.array_equal(cropped, whole)


def test_evaluation_sees_the_first_view_and_training_one_of_them(bench: Bench) -> None:
    outputs, inputs = torch.from_numpy(bench.open()), bench.inputs()
    rows = np.array([7, 2, 7, 11])
    assert torch.equal(inputs.read(rows), outputs[rows * 4])
    drawn = [inputs.read_augmented(rows, LABELS, torch.Generator().manual_seed(seed))[0] for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    views = {int((outputs[7 * 4 : 8 * 4] == one).flatten(1).all(1).nonzero()) for one in _draws(inputs, 7)}
    assert views == {0, 1, 2, 3}


def _draws(inputs: CachedFeatures, row: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [inputs.read_augmented(np.array([row]), LABELS[:1], generator)[0][0] for _ in range(40)]


def test_images_are_the_same_for_training_and_evaluation(bench: Bench) -> None:
    images, rows = Images(bench.site, Transforms(), device=CPU), np.array([3, 1])
    assert torch.equal(images.read(rows), bench.site.read(rows))
    drawn, labels = images.read_augmented(rows, LABELS[:2], torch.Generator())
    assert torch.equal(drawn, images.read(rows))
    assert torch.equal(labels, LABELS[:2])


def test_masks_are_seen_as_their_images() -> None:
    mask = torch.randint(0, 3, (32, 48), generator=torch.Generator().manual_seed(0))
    for view in range(4):
        assert torch.equal(view_mask(mask, view), view_images(mask[None, None], view)[0, 0])
    block = torch.zeros(32, 48, dtype=torch.int64)
    block[8:24, 12:36] = 2
    for view in range(4, 8):
        seen, shown = view_mask(block, view), view_images(block[None, None].float(), view)[0, 0]
        assert seen.dtype == block.dtype
        assert torch.equal(seen, 2 * (shown > 1))


def test_they_are_computed_once_and_again_to_the_same_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.open()
    (path,) = bench.files
    before = path.read_bytes()
    monkeypatch.setattr(trunk_module, "_compute", lambda *args: pytest.fail("computed twice"))
    bench.open()
    monkeypatch.undo()
    path.unlink()
    torch.rand(100)
    bench.open()
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.part"))


def _open_elsewhere(root: Path, settings: Settings) -> np.ndarray:
    with use_threads(settings.threads):
        return np.array(open_site(open_prepared(root), settings).features.array)


@pytest.mark.slow
def test_of_two_processes_one_computes_them(bench: Bench) -> None:
    expected = bench.open()
    (path,) = bench.files
    path.unlink()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        found = list(processes.map(_open_elsewhere, [bench.data.root] * 2, [bench.settings] * 2))
    assert all(np.array_equal(outputs, expected) for outputs in found)
    assert sorted(file.suffix for file in path.parent.iterdir()) == [".json", ".lock", ".npy"]


def test_random_states_are_left_alone(bench: Bench) -> None:
    before = torch.get_rng_state()
    bench.open()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("damage", ["bit", "cut", "facts", "no facts", "half-written"])
def test_what_is_damaged_is_computed_anew(bench: Bench, damage: str) -> None:
    expected = bench.open()
    (path,) = bench.files
    facts = path.with_suffix(".json")
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-5] ^= 1
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "facts":
        facts.write_text(json.dumps([1]))
    elif damage == "no facts":
        facts.unlink()
    else:
        path.unlink()
        facts.unlink()
        path.with_name(f".{path.name}.onnxruntime.part").write_bytes(content[:100])
    assert np.array_equal(bench.open(), expected)
    assert json.loads(facts.read_text())["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("torn", [False, True])
def test_who_is_stopped_goes_on_from_there_to_the_same_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, torn: bool
) -> None:
    monkeypatch.setattr(trunk_module, "resolve_batch_size", lambda *args, **size: 8)
    bench.open()
    (path,) = bench.files
    expected, part = path.read_bytes(), path.with_name(f".{path.name}.onnxruntime.part")
    path.unlink()
    asked: list[list[int]] = []
    plain = Images.read

    def read(images: Images, rows: np.ndarray) -> torch.Tensor:
        asked.append(rows.tolist())
        if len(asked) == 5:
            raise KeyboardInterrupt
        return plain(images, rows)

    monkeypatch.setattr(Images, "read", read)
    with pytest.raises(KeyboardInterrupt):
        bench.open()
    if torn:
        content = part.read_bytes()
        part.write_bytes(content[:-3000] + bytes(2999))
    asked.clear()
    bench.open()
    first = {False: 16, True: 8}[torn]
    assert asked[:2] == [[0], [*range(first, first + 8)]]
    assert path.read_bytes() == expected
    assert not part.exists()


def test_whatever_decides_the_bits_has_a_file_of_its_own(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    training = bench.settings.training
    bench.open()
    bench.open(seed=5, strategy="random", rounds=3)
    assert len(bench.files) == 1
    bench.open(training=training.model_copy(update={"views": 2}))
    bench.open(training=training.model_copy(update={"trainable": "head"}))
    with use_threads(2):
        bench.open(threads=2)
    bench.open(transforms=Transforms(normalise="imagenet"))
    other = write_weights(bench.data.root.parent / "other.safetensors", seed=4)
    bench.open(weights=str(other), weights_digest=hash_tensors(load_file(other)))
    assert len(bench.files) == 6
    monkeypatch.setattr(trunk_module, "version", lambda package: f"9.1 of {package}")
    bench.open()
    assert len(bench.files) == 7


def test_outputs_of_images_that_are_gone_are_cleared(bench: Bench, tmp_path: Path) -> None:
    training = bench.settings.training
    head = {"training": training.model_copy(update={"trainable": "head"})}
    bench.open()
    bench.open(training=training.model_copy(update={"views": 2}))
    held, free = bench.files
    bench.open(**head)
    (other_part,) = set(bench.files) - {held, free}
    facts = json.loads(held.with_suffix(".json").read_text())
    elsewhere = _beside(held, "elsewhere", {**facts, "root": "/elsewhere"})
    untold = _beside(held, "untold", {"shape": [1], "sha256": ""})

    shutil.rmtree(bench.data.root)
    again = Bench(tmp_path, samples=25)
    with lock_file(held.with_name(f".{held.name}.lock")):
        again.open()
    # What somebody holds stays, as do another part's, another folder's, and what does not tell its images.
    (new,) = set(again.files) - {held, other_part, elsewhere, untold}
    assert len(again.files) == 5
    assert not free.with_suffix(".json").exists()
    assert json.loads(new.with_suffix(".json").read_text())["data"] == again.data.digest
    again.open(**head)
    assert not other_part.exists()
    assert new.exists()


def _beside(path: Path, digest: str, facts: dict[str, object]) -> Path:
    """Outputs of the same site, network and part, with facts of their own."""
    other = path.with_name(f"alder-tiny-cnn-tail-{digest}.npy")
    other.touch()
    other.with_suffix(".json").write_text(json.dumps(facts))
    return other


def test_other_weights_than_the_runs_are_refused(bench: Bench, tmp_path: Path) -> None:
    write_weights(tmp_path / "weights.safetensors", seed=4)
    with pytest.raises(FealError, match="not those that the run started with"):
        bench.open()
    assert bench.files == []


def test_images_that_are_not_those_prepared_leave_no_outputs(bench: Bench) -> None:
    path = bench.site.folder / "images.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(FealError, match="images.npy is not the one that was prepared .*: copy it again"):
        bench.open()
    assert bench.files == []
    path.write_bytes(content)
    bench.open()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_data_that_cannot_be_written_beside_use_the_users_cache(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    tmp_path.chmod(0o500)
    try:
        bench.open()
    finally:
        tmp_path.chmod(0o700)
    assert bench.files == []
    assert len(list((tmp_path / "cache" / "feal" / "trunks").glob("*.npy"))) == 1


def test_where_nothing_can_be_written_beside(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trunk_module.os, "access", lambda path, mode: False)
    expected = bench.open()
    assert bench.files == []
    assert len(list((tmp_path / "cache" / "feal" / "trunks").glob("*.npy"))) == 1
    monkeypatch.undo()
    assert np.array_equal(bench.open(), expected)


def test_damaged_outputs_that_cannot_be_replaced_are_passed_by(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = bench.open()
    (path,) = bench.files
    path.write_bytes(path.read_bytes()[:-1])
    damaged = path.read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(trunk_module.os, "access", lambda path, mode: False)
    assert np.array_equal(bench.open(), expected)
    assert path.read_bytes() == damaged
    assert len(list((tmp_path / "cache" / "feal" / "trunks").glob("*.npy"))) == 1


def test_a_full_disk_is_one_sentence_and_leaves_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trunk_module.ArrayWriter, "append", full)
    with pytest.raises(FealError, match="No space left to write .*alder-tiny-cnn-tail"):
        bench.open()
    folder = bench.data.root.parent / "data-trunks"
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


IMAGES = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))


def test_the_first_view_is_the_image_itself() -> None:
    assert view_images(IMAGES, 0) is IMAGES


@pytest.mark.parametrize(("view", "axes"), [(1, [3]), (2, [2]), (3, [2, 3])])
def test_three_are_flips(view: int, axes: list[int]) -> None:
    assert torch.equal(view_images(IMAGES, view), IMAGES.flip(axes))
    assert torch.equal(view_images(IMAGES, view + 4), view_images(view_images(IMAGES, 4), view))


def test_four_are_of_the_enlarged_middle() -> None:
    ramp = torch.arange(32.0).reshape(1, 1, 1, 32).expand(1, 1, 32, 32)
    columns = view_images(ramp, 4)[0, 0, 16]
    steps = columns.diff()[1:-1]
    torch.testing.assert_close(steps, torch.full_like(steps, 7 / 8))
    assert columns[0] == pytest.approx(2, abs=0.1)
    assert columns[-1] == pytest.approx(29, abs=0.1)


def test_all_differ_and_keep_shape_and_memory_format() -> None:
    last = IMAGES.to(memory_format=torch.channels_last)
    views = [view_images(last, view) for view in range(MAX_VIEWS)]
    assert all(view.shape == IMAGES.shape for view in views)
    assert all(view.is_contiguous(memory_format=torch.channels_last) for view in views)
    assert all(not torch.equal(one, other) for i, one in enumerate(views) for other in views[:i])


@pytest.mark.parametrize("view", [-1, MAX_VIEWS])
def test_there_are_no_others(view: int) -> None:
    with pytest.raises(ValueError, match="numbered from 0 to 7"):
        view_images(IMAGES, view)
