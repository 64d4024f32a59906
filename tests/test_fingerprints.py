"""Small runs give the bits they gave before; on another kind of processor, the same samples and near numbers."""

import json
from pathlib import Path

import pytest

from tests.fingerprints import GOLDEN, cases, fingerprint, machine

KNOWN = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", sorted(cases()))
def test_a_run_keeps_its_bits(name: str, tmp_path: Path) -> None:
    made, known = fingerprint(cases()[name](tmp_path)), KNOWN["runs"][name]
    if machine() == KNOWN["machine"]:
        assert made == known
        return
    assert [weights["norm"] for weights in made["weights"]] == pytest.approx(
        [weights["norm"] for weights in known["weights"]], rel=1e-3
    )
    assert made["selections"].keys() == known["selections"].keys()
    assert len(made["metrics"]) == len(known["metrics"])


def test_every_fingerprint_has_a_run() -> None:
    assert set(KNOWN["runs"]) == set(cases())
