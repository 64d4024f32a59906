import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

from feal.analysis.plots import PLOTS
from feal.analysis.plots.theme import PAGE
from feal.analysis.runs import Run
from feal.metrics.statistics import ENERGY_BINS, ENERGY_RANGE
from tests.analysis.fabricated import fabricated, keep
from tests.analysis.plots.specs import drawn, titles

ENERGY = PLOTS.get("energy")
SITES = tuple(f"hospital-{letter}" for letter in "abcdef")


def _samples(sites: tuple[str, ...] = SITES) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {site: draw.normal(-4 + place, 1, 30 + place) for place, site in enumerate(sites)}


def _counts(samples: dict[str, np.ndarray]) -> dict[str, list[int]]:
    return {site: np.histogram(values, ENERGY_BINS, ENERGY_RANGE)[0].tolist() for site, values in samples.items()}


def _run(path: Path, samples: dict[str, np.ndarray], *, kept: bool = True) -> Run:
    run = fabricated(path, sites=tuple(samples), energy=_counts(samples))
    for site, values in samples.items() if kept else ():
        # Two equal logits of -E - log 2 have the energy E.
        logits = np.repeat((-values - np.log(2))[:, None], 2, axis=1)
        keep(run, site, "evaluation-002", rows=np.arange(len(values)), logits=logits)
    return run


def test_p_values_between_sites_are_scipy_s(tmp_path: Path) -> None:
    samples = _samples()
    rows = ENERGY.data([_run(tmp_path, samples)])
    assert all(row["exact"] and row["round"] == 2 and row["arm"] == "feal" for row in rows)
    found = {(row["site"], row["other"]): (row["statistic"], row["p"]) for row in rows if row["other"]}
    assert found.keys() == set(combinations(SITES, 2))
    for (one, other), numbers in found.items():
        expected = ks_2samp(samples[one], samples[other])
        assert numbers == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


def test_a_density_for_every_site_integrates_to_one(tmp_path: Path) -> None:
    rows = [row for row in ENERGY.data([_run(tmp_path, _samples())]) if row["other"] is None]
    for place, site in enumerate(SITES):
        own = [row for row in rows if row["site"] == site]
        energy, density = ([row[key] for row in own] for key in ("energy", "density"))
        assert np.trapezoid(density, energy) == pytest.approx(1, abs=1e-3)
        assert np.trapezoid(np.multiply(density, energy), energy) == pytest.approx(-4 + place, abs=0.5)
        assert own[0]["samples"] == 30 + place


@pytest.mark.parametrize("missing", SITES[:2])
def test_histograms_replace_missing_samples_of_a_site(tmp_path: Path, missing: str) -> None:
    samples = _samples(SITES[:3])
    run = _run(tmp_path, samples)
    (tmp_path / "sites" / missing / "diagnostics" / "evaluation-002.safetensors").unlink()
    rows = ENERGY.data([run])
    assert not any(row["exact"] for row in rows)
    centres = {site: (np.floor(values * 2) + 0.5) / 2 for site, values in samples.items()}
    for row in rows:
        if row["other"]:
            expected = ks_2samp(centres[row["site"]], centres[row["other"]])
            assert (row["statistic"], row["p"]) == pytest.approx((expected.statistic, expected.pvalue))
    assert "histograms with bins of 0.5 nats" in ENERGY.draw(rows).note


def test_the_matrix_is_symmetric_and_written_out(tmp_path: Path) -> None:
    rows = ENERGY.data([_run(tmp_path, _samples())])
    chart = ENERGY.draw(rows)
    cells = {(row["one"], row["two"]): row for row in drawn(chart) if "one" in row}
    assert cells.keys() == {(one, two) for one in SITES for two in SITES if one != two}
    for row in rows:
        if row["other"]:
            here, there = cells[row["site"], row["other"]], cells[row["other"], row["site"]]
            assert here["text"] == there["text"]
            assert (
                here["text"] == "<.001"
                if row["p"] < 5e-4
                else float(here["text"]) == pytest.approx(row["p"], abs=5e-4)
            )
            bound = float(here["level"].split()[-1])
            assert row["p"] >= bound if "≥" in here["level"] else row["p"] < bound
    assert titles(chart) == ["Density of energies, per nat", "p-values between sites"]
    assert {row["label"] for row in drawn(chart) if "label" in row} == {
        f"{site} (n = {30 + place})" for place, site in enumerate(SITES)
    }
    assert len(json.dumps(chart.to_spec())) < 150_000


def test_each_panel_has_a_legend_no_wider_than_itself(tmp_path: Path) -> None:
    spec = ENERGY.draw(ENERGY.data([_run(tmp_path, _samples())])).to_spec()
    # An entry such as "hospital-a (n = 30)" takes almost half of a panel.
    assert spec["config"]["legend"]["columns"] == 2
    assert spec["usermeta"]["entry"] > PAGE // 4


def test_one_site_has_a_density_and_no_matrix(tmp_path: Path) -> None:
    rows = ENERGY.data([_run(tmp_path, _samples(SITES[:1]), kept=False)])
    assert rows
    assert not any(row["other"] for row in rows)
    assert titles(ENERGY.draw(rows)) == ["Density of energies, per nat"]


def test_constant_energies_are_drawn(tmp_path: Path) -> None:
    same = {"a": np.full(20, -1.5), "b": np.full(30, -1.5)}
    rows = ENERGY.data([_run(tmp_path, same)])
    assert [row["p"] for row in rows if row["other"]] == [1.0]
    assert np.isfinite([row["density"] for row in rows if row["other"] is None]).all()
    assert {row["text"] for row in drawn(ENERGY.draw(rows)) if "one" in row} == {"1.00"}


def test_nothing_to_see_before_the_first_round_or_without_test_images(tmp_path: Path) -> None:
    for run in (
        fabricated(tmp_path, rounds=0),
        fabricated(tmp_path),
        fabricated(tmp_path, energy={"a": [0] * 256}),
    ):
        assert ENERGY.data([run]) == []


def test_a_part_of_the_rows_is_drawn_all_the_same(tmp_path: Path) -> None:
    rows = [row for row in ENERGY.data([_run(tmp_path, _samples(SITES[:3]))]) if row["site"] == SITES[0]]
    chart = ENERGY.draw(rows)
    assert {row["site"] for row in drawn(chart) if "density" in row} == {SITES[0]}
    assert {(row["one"], row["two"]) for row in drawn(chart) if "one" in row} == {
        (SITES[0], SITES[1]), (SITES[1], SITES[0]), (SITES[0], SITES[2]), (SITES[2], SITES[0]),
    }  # fmt: skip
