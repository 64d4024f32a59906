"""Truth from elsewhere: mpmath at 40 digits, and the stored numbers of the authors' code."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import mpmath as mp

from tests.paths import PROJECT


class Truth(NamedTuple):
    aleatoric: float
    epistemic: float
    kl: float


def dirichlet(alpha: Sequence[float]) -> Truth:
    """The formulas as they stand in the method, without any rearrangement."""
    with mp.workdps(40):
        parts = [mp.mpf(a) for a in alpha]
        total = mp.fsum(parts)
        aleatoric = mp.fsum(a / total * (mp.digamma(total + 1) - mp.digamma(a + 1)) for a in parts)
        slope = mp.fsum((a - 1) * (mp.digamma(a) - mp.digamma(total)) for a in parts)
        volume = mp.fsum(mp.loggamma(a) for a in parts) - mp.loggamma(total)
        return Truth(float(aleatoric), float(volume - slope), float(slope - volume - mp.loggamma(len(parts))))


def golden(name: str) -> Any:
    return json.loads((PROJECT / "tests" / "golden" / f"{name}.json").read_text())
