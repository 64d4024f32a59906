"""The samples that a site may ask for, and what it takes to look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from feal.models import Network
from feal.selection import Role
from feal.selection.observation import ReadImages


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Unlabelled samples, and beside them the labelled ones, with the models of the round."""

    ids: Sequence[str]
    labelled: Sequence[str]
    """The samples that have a label already, for strategies that look at them too."""
    read: ReadImages
    networks: Mapping[Role, Network]
    scratch: Path
    device: torch.device
