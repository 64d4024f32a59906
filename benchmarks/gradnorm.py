"""gradnorm's observation: all parameters against a backward pass for each image, the last layer against a forward
pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

import torch

from feal.models import Network
from feal.selection import STRATEGIES, Context, RoleModel, gradients
from feal.settings import Selection
from measuring import Measured, afresh, in_megabytes, in_words, measured, medians, table
from noise import Case

TRIED = 8  # images on which the plain form is timed

Form = Callable[[], object]


def forms(case: Case) -> dict[str, Form]:
    """The ways to look at a batch of images."""
    network = case.network().eval()
    images = torch.rand(case.samples, 3, case.size, case.size).to(memory_format=torch.channels_last)
    observe = STRATEGIES.get("gradnorm")().observe
    every = case.context("plain")
    head = case.context("plain", Selection(batch_size=case.batch_size, scope="head"))

    def observed(context: Context) -> None:
        with torch.no_grad():
            for batch in images.split(case.batch_size):
                observe(batch, {"global": RoleModel(network)}, context)

    @torch.no_grad()
    def forward() -> None:
        for batch in images.split(case.batch_size):
            network(batch)

    return {
        "forward": forward,
        "head": lambda: observed(head),
        "all": lambda: observed(every),
        "plain": lambda: one_by_one(network, images[:TRIED]),
    }


def one_by_one(network: Network, images: torch.Tensor) -> list[torch.Tensor]:
    """The definition: for each image the entropy, a backward pass, and the norm of each parameter's gradient."""
    parameters = list(network.parameters())
    norms = []
    for image in images.split(1):
        logits = network(image)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        norms.append(sum(each.norm() for each in torch.autograd.grad(entropy, parameters)))
    return norms


def way(case: Case) -> str:
    """Whether images are walked back through the network together or one at a time."""
    with patch.object(gradients, "_single_norms", wraps=gradients._single_norms) as single:
        forms(case)["all"]()
    return "one by one" if single.called else "batched"


def _memory(case: Case, form: str) -> Measured:
    forms(case)["forward"]()  # whatever libraries allocate once
    given = forms(case)[form]
    return measured(given)


def rows(cases: Sequence[Case], repeats: int) -> Iterator[list[str]]:
    """A row for each network and scope."""
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
        given = forms(case)
        medians(given, 1)  # whatever libraries do once
        seconds = {name: each / case.samples for name, each in medians(given, repeats).items()}
        seconds["plain"] *= case.samples / min(TRIED, case.samples)
        for scope, name in (("all", f"scope: all, {way(case)}"), ("head", "scope: head")):
            ours = seconds[scope]
            plain = [in_words(seconds["plain"]), f"{seconds['plain'] / ours:.1f}"] if scope == "all" else ["", ""]
            memory = in_megabytes(afresh(_memory, case, scope).extra)
            forward = [in_words(seconds["forward"]), f"{ours / seconds['forward']:.2f}"]
            yield [name, case.model, str(case.size), in_words(ours), memory, *plain, *forward]


def show(*, quick: bool) -> None:
    """Print the table of gradnorm."""
    samples = 16 if quick else 64
    cases = [
        Case("tiny-cnn", "classification", 64, samples, 64, classes=8),
        Case("efficientnet-b0", "classification", 64, samples, 64, classes=8),
        Case("unet", "segmentation", 128, samples // 4, 4),
    ]
    print("Observing, gradnorm: seconds a sample; memory is extra")
    table(rows(cases, 3))
    print(f"* a forward and a backward pass for each image, timed on {TRIED}\n")
