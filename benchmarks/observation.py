"""The whole selection of a site against the bare forward passes that it needs, its memory, and gradient norms.

The bare passes have every image in memory as float32 already, in the same memory format; the selection reads
stored bytes, observes, and chooses a tenth of the pool. Gradient norms of all parameters are compared with a
backward pass for each image, those of the last layer with a forward pass.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch

from cases import Case
from feal.federation.site.query import Pool, select_from_pool
from feal.models import Network
from feal.rng import Address
from feal.selection import STRATEGIES, RoleModel, gradient_norms
from timing import (
    Measurement,
    format_megabytes,
    format_seconds,
    measure,
    median_seconds,
    print_table,
    run_in_fresh_process,
)

STRATEGIES_SHOWN = ("entropy", "tod", "kafal", "feal", "logo", "strata", "badge", "coreset")
WITH_DIAGNOSTICS = "feal, and for analysis"
BOTH = 2  # models that strategies look at, at most
TRIED = 8  # images on which the plain form of gradient norms is timed

Form = Callable[[], object]


@dataclass(frozen=True)
class Ready:
    """A prepared pool and networks."""

    case: Case
    pool: Pool

    def selection(self, strategy: str, *, diagnostics: bool = False) -> Callable[[], object]:
        """Return the selection by a strategy, with its default settings."""
        chosen = STRATEGIES.get(strategy)()
        return lambda: select_from_pool(
            chosen,
            self.pool,
            self.case.context(chosen.default_loss),
            budget=max(1, self.case.samples // 10),
            candidates="all",
            diagnostics=diagnostics,
            address=Address(seed=0, purpose="select"),
        )


@contextmanager
def prepare_pool(case: Case) -> Iterator[Ready]:
    """Prepare a pool and networks for as long as the context lasts."""
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
                batch_size=case.batch_size,
            ),
        )


@torch.no_grad()
def forward(networks: Sequence[Network], batches: Sequence[torch.Tensor]) -> None:
    """Run the networks over the pool, and nothing else."""
    for batch in batches:
        for network in networks:
            network(batch)


def selection_rows(cases: Sequence[Case], repeats: int) -> Iterator[list[str]]:
    """Yield a row for each strategy and network."""
    yield ["", "network", "size", "pool", "models", "selection", "forward passes", "ratio"]
    for case in cases:
        with prepare_pool(case) as given:
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
    needed = {strategy: len(_roles(strategy)) for strategy in STRATEGIES_SHOWN} | {WITH_DIAGNOSTICS: BOTH}
    median_seconds(forms | {"logo": selections["logo"]}, 1)  # whatever libraries do once
    seconds = median_seconds(forms | selections, repeats)
    for strategy in selections:
        bare = seconds[str(needed[strategy])]
        times = [format_seconds(seconds[strategy]), format_seconds(bare), f"{seconds[strategy] / bare:.3f}"]
        yield [strategy, case.model, str(case.size), str(case.samples), str(needed[strategy]), *times]


def _roles(strategy: str) -> frozenset[str]:
    return STRATEGIES.get(strategy)().required_roles()


def memory_rows(case: Case, sizes: Sequence[int]) -> Iterator[list[str]]:
    """Yield a row for each of a few strategies: extra memory with small and large pools."""
    yield ["", *(f"{size} images" for size in sizes), "more, a sample", "its columns", "its image", "its logits"]
    for strategy in ("feal", "badge"):
        extra = [
            run_in_fresh_process(_measure_selection, replace(case, samples=size), strategy).extra for size in sizes
        ]
        grown = (extra[-1] - extra[0]) / (sizes[-1] - sizes[0])
        kept = _column_bytes(case, strategy)
        pixels = case.size**2
        each = [grown, kept, 3 * pixels, 4 * case.classes * pixels]
        yield [strategy, *map(format_megabytes, extra), *(f"{number / 1e3:,.1f} kB" for number in each)]


def _measure_selection(case: Case, strategy: str) -> Measurement:
    with prepare_pool(case) as given:
        return measure(given.selection(strategy))


@torch.no_grad()
def _column_bytes(case: Case, strategy: str) -> int:
    """Count the bytes of a sample's columns."""
    class_ = STRATEGIES.get(strategy)
    network = RoleModel(case.network().eval())
    image = torch.zeros(1, 3, case.size, case.size)
    columns = class_().observe(image, {"global": network, "local": network}, case.context(class_.default_loss))
    return sum((8 if column.dim() == 1 else 4) * column.numel() for column in columns.values())


def show_selection(*, quick: bool) -> None:
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
    print_table(selection_rows(cases, repeats))
    print(f"Extra memory of the whole selection, U-Net at {pixels} pixels, 4 images in a batch")
    print_table(memory_rows(Case("unet", "segmentation", pixels, sizes[0], 4), sizes))


def gradient_forms(case: Case) -> dict[str, Form]:
    """Build the forms of observing a batch of images."""
    network = case.network().eval()
    images = torch.rand(case.samples, 3, case.size, case.size).to(memory_format=torch.channels_last)
    context = case.context("plain")

    def observe(scope: str) -> None:
        strategy = STRATEGIES.get("gradnorm")(scope=scope)
        with torch.no_grad():
            for batch in images.split(case.batch_size):
                strategy.observe(batch, {"global": RoleModel(network)}, context)

    @torch.no_grad()
    def forward() -> None:
        for batch in images.split(case.batch_size):
            network(batch)

    return {
        "forward": forward,
        "head": lambda: observe("head"),
        "all": lambda: observe("all"),
        "plain": lambda: one_by_one(network, images[:TRIED]),
    }


def one_by_one(network: Network, images: torch.Tensor) -> list[torch.Tensor]:
    """Follow the definition: for each image the entropy, a backward pass, the norm of each gradient."""
    parameters = list(network.parameters())
    norms = []
    for image in images.split(1):
        logits = network(image)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        norms.append(sum(each.norm() for each in torch.autograd.grad(entropy, parameters)))
    return norms


def describe_way(case: Case) -> str:
    """Tell whether images go back through the network together or one at a time."""
    with patch.object(gradient_norms, "_single_norms", wraps=gradient_norms._single_norms) as single:
        gradient_forms(case)["all"]()
    return "one by one" if single.called else "batched"


def _measure_form(case: Case, form: str) -> Measurement:
    gradient_forms(case)["forward"]()  # whatever libraries allocate once
    given = gradient_forms(case)[form]
    return measure(given)


def gradient_rows(cases: Sequence[Case], repeats: int) -> Iterator[list[str]]:
    """Yield a row for each network and scope."""
    yield [
        "",
        "network",
        "size",
        "a sample",
        "memory",
        "one by one *",
        "over ours",
        "forward pass",
        "ours over it",
    ]
    for case in cases:
        given = gradient_forms(case)
        median_seconds(given, 1)  # whatever libraries do once
        seconds = {name: each / case.samples for name, each in median_seconds(given, repeats).items()}
        seconds["plain"] *= case.samples / min(TRIED, case.samples)
        for scope, name in (("all", f"scope: all, {describe_way(case)}"), ("head", "scope: head")):
            ours = seconds[scope]
            plain = (
                [format_seconds(seconds["plain"]), f"{seconds['plain'] / ours:.1f}"]
                if scope == "all"
                else ["", ""]
            )
            memory = format_megabytes(run_in_fresh_process(_measure_form, case, scope).extra)
            forward = [format_seconds(seconds["forward"]), f"{ours / seconds['forward']:.2f}"]
            yield [name, case.model, str(case.size), format_seconds(ours), memory, *plain, *forward]


def show_gradients(*, quick: bool) -> None:
    """Print the table of gradnorm."""
    samples = 16 if quick else 64
    cases = [
        Case("tiny-cnn", "classification", 64, samples, 64, classes=8),
        Case("efficientnet-b0", "classification", 64, samples, 64, classes=8),
        Case("unet", "segmentation", 128, samples // 4, 4),
    ]
    print("Observing, gradnorm: seconds a sample; memory is extra")
    print_table(gradient_rows(cases, 3))
    print(f"* a forward and a backward pass for each image, timed on {TRIED}\n")
