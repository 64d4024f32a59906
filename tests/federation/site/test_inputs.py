"""Labelled samples as training reads them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from feal.annotation import Answer, Query
from feal.federation.site.inputs import LabelledSamples
from feal.rundir.site_store import Store


class Rows:
    """A site and its inputs: a sample is its letter's number."""

    def rows(self, ids: list[str]) -> np.ndarray:
        return np.array([ord(sample) for sample in ids], dtype=np.int64)

    def read(self, rows: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(rows)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "site.sqlite")
    yield store
    store.close()


def _label(store: Store, samples: str, labels: Any) -> None:
    with store.transaction():
        store.add_queries([Query(sample=sample, round=1, rank=1, score=0.5, model="m") for sample in "abcde"])
        store.add_answers([Answer(sample=s, label=n, by="me") for s, n in zip(samples, labels, strict=True)])


def test_a_batch_has_the_masks_of_its_samples(store: Store) -> None:
    masks = np.random.default_rng(0).integers(0, 3, (4, 7, 5)).astype(np.uint8)
    _label(store, "abde", masks)
    rows: Any = Rows()
    inputs, found = LabelledSamples(store, rows, inputs=rows, task="segmentation").read(torch.tensor([3, 0, 3]))
    assert found.dtype == torch.uint8
    assert np.array_equal(found.numpy(), masks[[3, 0, 3]])
    assert [chr(row) for row in inputs.tolist()] == ["e", "a", "e"]


def test_a_batch_has_the_classes_of_its_samples(store: Store) -> None:
    _label(store, "ca", [2, 7])
    rows: Any = Rows()
    samples = LabelledSamples(store, rows, inputs=rows, task="classification")
    assert len(samples) == 2
    assert samples.targets(torch.tensor([1, 0, 1])).tolist() == [2, 7, 2]
