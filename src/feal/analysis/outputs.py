"""Read what the sites of a run kept of single samples; none where their directories are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.analysis.runs import Run
from feal.evidential import build_loss
from feal.rundir.artifacts import read_pool_outputs, read_test_outputs
from feal.rundir.layout import RunDirectory
from feal.selection import SelectionContext

Outputs = Mapping[str, torch.Tensor]


def read_pool(run: Run, round_: int) -> dict[str, Outputs]:
    """Read both models' outputs for each unlabelled sample at the end of a round, by site."""
    sites = RunDirectory(run.path)
    read = {site: read_pool_outputs(sites.site(site), round_) for site in run.sites}
    return {site: kept for site, kept in read.items() if kept}


def read_test(run: Run, round_: int) -> dict[str, Outputs]:
    """Read the global model's outputs for each test sample at the end of a round, by site."""
    sites = RunDirectory(run.path)
    read = {site: read_test_outputs(sites.site(site), round_) for site in run.sites}
    return {site: kept for site, kept in read.items() if kept}


def make_context(run: Run) -> SelectionContext:
    """Return the context that turns the run's logits into probabilities and evidence."""
    return SelectionContext.for_reading(
        task=run.task,
        classes=len(run.classes),
        loss=build_loss(run.settings.loss),
    )


def read_pool_logits(run: Run, round_: int) -> torch.Tensor:
    """Return the global model's logits at the end of a round for all sites' unlabelled samples, [n, C]."""
    return _concatenate(run, [kept["logits_global"] for kept in _with_logits(run, round_).values()])


def read_selected_logits(run: Run, round_: int) -> torch.Tensor:
    """Return the same for the samples that were then selected, [n, C].

    They are those missing from the next round's pool; none if that round is not complete, or if only a part of the
    pool was scored (`selection.candidates`).
    """
    if run.settings.selection.candidates != "all":
        return _concatenate(run, [])
    after = read_pool(run, round_ + 1)
    chosen = [
        kept["logits_global"][~torch.isin(kept["rows"], after[site]["rows"])]
        for site, kept in _with_logits(run, round_).items()
        if site in after
    ]
    return _concatenate(run, chosen)


def read_energies(run: Run, round_: int) -> dict[str, NDArray[np.float64]]:
    """Return the energy -logsumexp(z) of each test sample under a round's global model, by site."""
    return {site: _compute_energy(kept) for site, kept in read_test(run, round_).items()}


def _with_logits(run: Run, round_: int) -> dict[str, Outputs]:
    """Return pools with a scored sample; none for segmentation, which stores no logits."""
    return {site: kept for site, kept in read_pool(run, round_).items() if "logits_global" in kept}


def _concatenate(run: Run, logits: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.empty(0, len(run.classes)), *logits])


def _compute_energy(kept: Outputs) -> NDArray[np.float64]:
    """Return the energy of each sample; segmentation stores each image's mean over pixels."""
    energy = kept["energy"] if "energy" in kept else -torch.logsumexp(kept["logits"].double(), dim=1)
    return energy.double().numpy()
