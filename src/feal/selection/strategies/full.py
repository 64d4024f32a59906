"""Everything labelled: the upper bound that the others are measured against."""

from __future__ import annotations

from typing import ClassVar

from feal.selection.base import STRATEGIES
from feal.selection.strategies.random import Random


@STRATEGIES.register("full", summary="everything labelled, in one round without a cap: the upper bound")
class Full(Random):
    """A run asks for the label of every sample at its beginning and ends after one round; nothing is chosen."""

    is_full_supervision: ClassVar[bool] = True
    source: ClassVar[str] = "upper bound"
