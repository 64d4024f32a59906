"""The whole feal selection of a site against the bare forward passes of both models over the same pool.

The bare passes have every image in memory as float32 already, in the same memory format; the selection reads
stored bytes, keeps what analysis needs, scores, and relaxes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from feal.federation.pool import Pool
from feal.federation.querying import select
from feal.models import Network
from feal.randomness import Address
from feal.selection import Context, Role
from feal.settings import Evidence, Selection, Settings
from measuring import in_words, medians
from noise import Case

CASES = [
    Case("efficientnet-b0", "classification", 64, 640, 64, classes=8),
    Case("unet", "segmentation", 384, 16, 4),
]


@torch.no_grad()
def forward(case: Case, images: torch.Tensor, networks: dict[Role, Network]) -> None:
    """Both models over the pool, and nothing else."""
    for batch in images.split(case.batch_size):
        for network in networks.values():
            network(batch)


def context_of(case: Case) -> Context:
    """Default settings, all classes labelled alike."""
    counts = torch.ones(case.classes, dtype=torch.float64)
    return Context(
        task=case.task,
        classes=case.classes,
        site_counts=counts,
        total_counts=counts,
        selection=Selection(batch_size=case.batch_size),
        evidence=Evidence(),
        loss="evidential",
    )


def compare(case: Case, repeats: int) -> dict[str, float]:
    """CPU seconds of both."""
    networks: dict[Role, Network] = {"global": case.network(0).eval(), "local": case.network(1).eval()}
    context = context_of(case)
    settings = Settings(dataset="noise", model=case.model, loss="evidential", selection=context.selection)
    with tempfile.TemporaryDirectory() as folder:
        site = case.site(Path(folder) / "noise")

        def read(ids: Sequence[str]) -> torch.Tensor:
            return site.images(ids).to(memory_format=torch.channels_last)

        ids = site.ids("train").tolist()
        images = read(ids)
        pool = Pool(
            ids=ids, labelled=[], read=read, networks=networks, scratch=Path(folder), device=torch.device("cpu")
        )
        address = Address(seed=0, purpose="select")
        forms = {
            "select": lambda: select(pool, context, settings, budget=case.samples // 10, address=address),
            "forward": lambda: forward(case, images, networks),
        }
        medians(forms, 1)
        return medians(forms, repeats)


def rows(repeats: int) -> Iterator[list[str]]:
    """A row for each network."""
    yield ["", "size", "pool", "selection", "forward passes", "ratio"]
    for case in CASES:
        seconds = compare(case, repeats)
        ratio = seconds["select"] / seconds["forward"]
        times = [in_words(seconds["select"]), in_words(seconds["forward"])]
        yield [case.model, str(case.size), str(case.samples), *times, f"{ratio:.3f}"]
