"""The whole selection of a site against the bare forward passes that it needs, and its memory.

The bare passes have every image in memory as float32 already, in the same memory format; the selection reads
stored bytes, observes, and chooses a tenth of the pool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from feal.federation.pool import Pool
from feal.federation.querying import roles_of, select
from feal.models import Network
from feal.randomness import Address
from feal.selection import STRATEGIES, RoleModel
from feal.settings import Settings
from measuring import Measured, afresh, in_megabytes, in_words, measured, medians, table
from noise import Case

STRATEGIES_SHOWN = ("entropy", "tod", "kafal", "feal", "logo", "strata", "badge", "coreset")
WITH_DIAGNOSTICS = "feal, and for analysis"
BOTH = 2  # models that strategies look at, at most


@dataclass(frozen=True)
class Ready:
    """A prepared pool and networks."""

    case: Case
    pool: Pool

    def selection(self, strategy: str, *, diagnostics: bool = False) -> Callable[[], object]:
        """The selection by a strategy, with its default settings."""
        class_ = STRATEGIES.get(strategy)
        context = self.case.context(class_.default_loss)
        settings = Settings(
            dataset="noise",
            model=self.case.model,
            strategy=strategy,
            selection=context.selection,
            diagnostics=diagnostics,
        )
        address = Address(seed=0, purpose="select")
        budget = max(1, self.case.samples // 10)
        return lambda: select(self.pool, context, settings, budget=budget, address=address)


@contextmanager
def ready(case: Case) -> Iterator[Ready]:
    """As long as the context lasts."""
    now, before = case.network(0).eval(), case.network(1).eval()
    with tempfile.TemporaryDirectory() as folder:
        site = case.site(Path(folder) / "noise")

        def read(ids: Sequence[str]) -> torch.Tensor:
            return site.images(ids).to(memory_format=torch.channels_last)

        yield Ready(
            case,
            Pool(
                ids=site.ids("train").tolist(),
                labelled=[],
                read=read,
                networks={"global": now, "local": before, "global_previous": before},
                scratch=Path(folder),
                device=torch.device("cpu"),
            ),
        )


@torch.no_grad()
def forward(networks: Sequence[Network], batches: Sequence[torch.Tensor]) -> None:
    """The networks over the pool, and nothing else."""
    for batch in batches:
        for network in networks:
            network(batch)


def rows(cases: Sequence[Case], repeats: int) -> Iterator[list[str]]:
    """A row for each strategy and network."""
    yield ["", "network", "size", "pool", "models", "selection", "forward passes", "ratio"]
    for case in cases:
        with ready(case) as given:
            yield from _case_rows(given, repeats)


def _case_rows(given: Ready, repeats: int) -> Iterator[list[str]]:
    case, pool = given.case, given.pool
    batches = [batch.clone() for batch in pool.read(pool.ids).split(case.batch_size)]
    networks = [pool.networks["global"], pool.networks["local"]]
    forms: dict[str, Callable[[], object]] = {
        str(models): partial(forward, networks[:models], batches) for models in range(1, BOTH + 1)
    }
    selections = {strategy: given.selection(strategy) for strategy in STRATEGIES_SHOWN}
    selections[WITH_DIAGNOSTICS] = given.selection("feal", diagnostics=True)
    needed = {strategy: len(_roles(case, strategy)) for strategy in STRATEGIES_SHOWN} | {WITH_DIAGNOSTICS: BOTH}
    medians(forms | {"logo": selections["logo"]}, 1)  # whatever libraries do once
    seconds = medians(forms | selections, repeats)
    for strategy in selections:
        bare = seconds[str(needed[strategy])]
        times = [in_words(seconds[strategy]), in_words(bare), f"{seconds[strategy] / bare:.3f}"]
        yield [strategy, case.model, str(case.size), str(case.samples), str(needed[strategy]), *times]


def _roles(case: Case, strategy: str) -> frozenset[str]:
    return frozenset(roles_of(Settings(dataset="noise", model=case.model, strategy=strategy)))


def memory_rows(case: Case, sizes: Sequence[int]) -> Iterator[list[str]]:
    """A row for each of a few strategies: extra memory with small and large pools."""
    yield ["", *(f"{size} images" for size in sizes), "more, a sample", "its columns", "its image", "its logits"]
    for strategy in ("feal", "badge"):
        extra = [afresh(_memory, replace(case, samples=size), strategy).extra for size in sizes]
        grown = (extra[-1] - extra[0]) / (sizes[-1] - sizes[0])
        kept = _column_bytes(case, strategy)
        pixels = case.size**2
        each = [grown, kept, 3 * pixels, 4 * case.classes * pixels]
        yield [strategy, *map(in_megabytes, extra), *(f"{number / 1e3:,.1f} kB" for number in each)]


def _memory(case: Case, strategy: str) -> Measured:
    with ready(case) as given:
        return measured(given.selection(strategy))


@torch.no_grad()
def _column_bytes(case: Case, strategy: str) -> int:
    """Bytes of a sample's columns."""
    class_ = STRATEGIES.get(strategy)
    network = RoleModel(case.network().eval())
    image = torch.zeros(1, 3, case.size, case.size)
    columns = class_().observe(image, {"global": network, "local": network}, case.context(class_.default_loss))
    return sum((8 if column.dim() == 1 else 4) * column.numel() for column in columns.values())


def show(*, quick: bool) -> None:
    """Print the tables of whole selections."""
    if quick:
        cases = [
            Case("efficientnet-b0", "classification", 64, 64, 64, classes=8),
            Case("unet", "segmentation", 128, 8, 4),
        ]
        sizes, pixels, repeats = (8, 24), 128, 3
    else:
        cases = [
            Case("efficientnet-b0", "classification", 64, 192, 64, classes=8),
            Case("unet", "segmentation", 384, 8, 4),
        ]
        sizes, pixels, repeats = (32, 96), 256, 3
    print("Observing: the whole selection of a site, and the bare forward passes of the models that it needs")
    table(rows(cases, repeats))
    print(f"Extra memory of the whole selection, U-Net at {pixels} pixels, 4 images in a batch")
    table(memory_rows(Case("unet", "segmentation", pixels, sizes[0], 4), sizes))
