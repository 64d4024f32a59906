"""What a site keeps about a round for people and for later analysis: the choice, and what the models said."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import torch

from feal.evidential import uncertainties
from feal.federation.pool import Pool
from feal.files import write_text
from feal.selection import Choice, Context, Models, Role


def write_choice(path: Path, choice: Choice) -> None:
    """Write a choice as CSV: sample id, rank from 1, and every part of its score."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["sample", "rank", *choice.parts])
    columns = [part.tolist() for part in choice.parts.values()]
    for row, sample in enumerate(choice.ids):
        writer.writerow([sample, row + 1, *(repr(column[row]) for column in columns)])
    write_text(path, table.getvalue())


ANALYSED = {
    "classification": ("logits_global", "logits_local"),
    "segmentation": ("aleatoric_global", "aleatoric_local", "epistemic_global", "energy_global"),
}
"""Columns of `observe_for_analysis`, by task, without what tells them from a strategy's own."""
KEPT = "kept_"


def observe_for_analysis(images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
    """Both models' logits (classification), or each image's uncertainties and energy (segmentation)."""
    logits_global = models["global"](images).logits
    if context.task == "classification":
        columns = {"logits_global": logits_global, "logits_local": models["local"](images).logits}
    else:
        aleatoric_global, epistemic_global = models["global"].uncertainty(images, context)
        columns = {
            "aleatoric_global": aleatoric_global,
            "aleatoric_local": models["local"].aleatoric(images, context),
            "epistemic_global": epistemic_global,
            "energy_global": -torch.logsumexp(logits_global.double(), dim=1).flatten(1).mean(1),
        }
    return {f"{KEPT}{name}": column for name, column in columns.items()}


@torch.no_grad()
def uncertainty_maps(
    ids: Sequence[str], pool: Pool, context: Context, *, batch_size: int
) -> dict[str, torch.Tensor]:
    """Uncertainty of every pixel of the given images by both models, as float16 [images, height, width]."""
    parts: dict[str, list[torch.Tensor]] = {}
    roles: tuple[Role, ...] = ("global", "local")
    for start in range(0, len(ids), batch_size):
        images = pool.read(ids[start : start + batch_size]).to(pool.device)
        for role in roles:
            aleatoric, epistemic = uncertainties(context.concentration(pool.networks[role].eval()(images)))
            parts.setdefault(f"map_aleatoric_{role}", []).append(aleatoric.half().cpu())
            parts.setdefault(f"map_epistemic_{role}", []).append(epistemic.half().cpu())
    return {name: torch.cat(maps) for name, maps in parts.items()}
