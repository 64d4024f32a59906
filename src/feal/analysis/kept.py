"""What a run's sites kept of single samples: at hand in simulation, elsewhere only at the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.analysis.runs import Run
from feal.files import read_tensors
from feal.selection import Context

Tensors = Mapping[str, torch.Tensor]


def kept_of_pool(run: Run, round_: int) -> dict[str, Tensors]:
    """What both models said of each unlabelled sample at the end of a round, by site; none without diagnostics.

    `rows` tells the samples; the rest are the columns of `feal.federation.records`.
    """
    return _kept(run, f"round-{round_:03}")


def kept_of_test(run: Run, round_: int) -> dict[str, Tensors]:
    """What the global model said of each test sample at the end of a round, by site; none without diagnostics."""
    return _kept(run, f"evaluation-{round_:03}")


def reading(run: Run) -> Context:
    """What it takes to read the run's logits."""
    return Context.for_reading(
        task=run.task,
        classes=len(run.classes),
        evidence=run.settings.evidence,
        loss=run.settings.loss or "plain",
    )


def pool_logits(run: Run, round_: int) -> torch.Tensor:
    """The global model's logits at the end of a round for the unlabelled samples of all sites, [n, C]."""
    return _joined(run, [kept["logits_global"] for kept in _judged(run, round_).values()])


def chosen_logits(run: Run, round_: int) -> torch.Tensor:
    """The same of those samples that were then asked for, [n, C].

    They are the ones that the next round's pool lacks; so that round must be closed, and a pool looked at in
    part only (`selection.candidates`) does not tell.
    """
    if run.settings.selection.candidates != "all":
        return _joined(run, [])
    after = kept_of_pool(run, round_ + 1)
    chosen = [
        kept["logits_global"][~torch.isin(kept["rows"], after[site]["rows"])]
        for site, kept in _judged(run, round_).items()
        if site in after
    ]
    return _joined(run, chosen)


def energies(run: Run, round_: int) -> dict[str, NDArray[np.float64]]:
    """The energy -logsumexp(z) of each test sample under a round's global model, by site."""
    return {site: _energy(kept) for site, kept in kept_of_test(run, round_).items()}


def _kept(run: Run, name: str) -> dict[str, Tensors]:
    files = {site: run.path / "sites" / site / "diagnostics" / f"{name}.safetensors" for site in run.sites}
    return {site: read_tensors(file) for site, file in files.items() if file.is_file()}


def _judged(run: Run, round_: int) -> dict[str, Tensors]:
    """Pools with a sample that was looked at; none for segmentation, which keeps no logits."""
    return {site: kept for site, kept in kept_of_pool(run, round_).items() if "logits_global" in kept}


def _joined(run: Run, logits: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.empty(0, len(run.classes)), *logits])


def _energy(kept: Tensors) -> NDArray[np.float64]:
    """Segmentation keeps each image's mean over pixels."""
    energy = kept["energy"] if "energy" in kept else -torch.logsumexp(kept["logits"].double(), dim=1)
    return energy.double().numpy()
