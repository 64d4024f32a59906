"""Runs that end once more labels are unlikely to bring enough."""

from collections.abc import Mapping
from pathlib import Path

import pytest

import feal
from feal.experiment import Result, resume, start
from feal.experiment.sweep import SweepRun
from feal.federation.callbacks import NullCallback
from feal.federation.coordinator.stopping import describe_forecast, find_stop, forecast_gain, may_stop
from feal.metrics import Statistics
from feal.metrics.learning_curve import predict_gain, sampling_error
from feal.rundir.journal import Journal, State, Stop
from feal.rundir.records import GainForecast, Round
from tests.runs import Listener, differences, events, fingerprint, labels, tiny

FORECAST = GainForecast(metric="balanced_accuracy", labels=5.0, gain=0.01, low=-0.1, high=0.12, bound=0.03)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A run of four rounds, without a limit."""
    return start(tiny(rounds=4), out=tmp_path_factory.mktemp("runs") / "planned")


@pytest.fixture
def stopped(tmp_path: Path) -> Result:
    """A run of four rounds that ends after the third."""
    return start(tiny(rounds=4, stop_below=0.9), out=tmp_path / "stopped")


def _round(number: int, total: int, value: float | None) -> Round:
    metrics = {"balanced_accuracy": {"mean": value, "pooled": value}}
    return Round(round=number, labels={"alder": total - 4, "birch": 4}, metrics=metrics)  # type: ignore[arg-type]


def _rounds(*points: tuple[int, float | None]) -> list[Round]:
    return [_round(number, *point) for number, point in enumerate(points, start=1)]


def _statistics(confusion: list[list[int]]) -> Statistics:
    values = {"calibration_count": [], "calibration_confidence": [], "calibration_correct": [], "energy": []}
    sums = {"aleatoric": 0.0, "epistemic": 0.0, "zero_evidence": 0.0, "class_evidence": []}
    return Statistics(samples=sum(map(sum, confusion)), confusion=confusion, **values, **sums)  # type: ignore[arg-type]


def test_a_forecast_is_of_the_pooled_primary_metric_over_all_labels() -> None:
    sites: Mapping[str, Statistics | None] = {
        "alder": _statistics([[8, 2], [5, 15]]),
        "birch": _statistics([[10, 0], [0, 0]]),
        "cedar": None,
    }
    forecast = forecast_gain(_rounds((10, 0.5), (20, 0.6), (32, 0.65)), "classification", sites)
    noise = sampling_error([(0.9, 20), (0.75, 20)])
    expected = predict_gain([10, 20, 32], [0.5, 0.6, 0.65], 44, noise=noise)
    assert forecast is not None
    assert (forecast.metric, forecast.labels) == ("balanced_accuracy", 6.0)
    assert (forecast.gain, forecast.high, forecast.bound) == (expected.gain, expected.high, expected.bound)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(10, 0.5), (20, 0.6)],
        [(10, 0.5), (20, 0.6), (30, None)],
        [(10, None), (20, 0.6), (30, 0.7)],
        [(10, 0.5), (20, 0.6), (30, 0.7), (30, 0.7)],
        [(10, 0.5), (20, 0.6), (12, 0.7)],
    ],
)
def test_where_there_is_no_forecast(points: list[tuple[int, float | None]]) -> None:
    assert forecast_gain(_rounds(*points), "classification", {}) is None


def test_rounds_without_the_labels_of_an_absent_site_take_the_place_of_those_before() -> None:
    forecast = forecast_gain(
        _rounds((10, 0.5), (20, 0.6), (30, 0.61), (25, 0.63), (40, 0.7)), "classification", {}
    )
    assert forecast is not None
    assert forecast.gain == predict_gain([10, 20, 25, 40], [0.5, 0.6, 0.63, 0.7], 55).gain


def test_a_run_stops_only_where_the_bound_is_below_the_limit() -> None:
    record = _round(3, 30, 0.5).model_copy(update={"forecast": FORECAST})
    assert find_stop(record, tiny(rounds=4)) is None
    assert find_stop(record, tiny(rounds=4, stop_below=0.03)) is None
    assert find_stop(record, tiny(rounds=4, stop_below=0.031)) == Stop(rounds=4, bound=0.03)
    assert find_stop(_round(3, 30, 0.5), tiny(rounds=4, stop_below=0.9)) is None


def test_it_is_decided_once_from_round_three_on_before_the_last() -> None:
    settings = tiny(rounds=5, stop_below=0.01)
    states = [State(configuration={}, task="classification", round=number) for number in range(6)]
    assert [may_stop(state, settings) for state in states] == [False, False, False, True, True, False]
    assert not may_stop(State(configuration={}, task="classification", round=3, cleared=3), settings)
    assert not may_stop(states[3], tiny(rounds=5))


@pytest.mark.parametrize(
    ("changes", "is_over"),
    [
        ({}, True),
        ({"stop_below": 0.05}, True),
        ({"stop_below": 0.02}, False),
        ({"stop_below": None}, False),
        ({"rounds": 6}, False),
        ({"rounds": 3}, True),
    ],
)
def test_what_continues_a_run_that_stopped(changes: dict[str, object], is_over: bool) -> None:
    stop = Stop(rounds=4, bound=0.03)
    state = State(configuration={}, task="classification", stage="finished", round=3, stopped=stop)
    assert state.is_over(tiny(**{"rounds": 4, "stop_below": 0.9, **changes})) == is_over


def test_one_label_is_singular() -> None:
    one = FORECAST.model_copy(update={"labels": 1.0})
    assert describe_forecast(one).startswith("Another 1 label a site is expected to bring +0.010 [-0.100, +0.120]")
    assert describe_forecast(FORECAST, stop_below=0.05) == (
        "Another 5 labels a site are unlikely to bring 0.05 balanced accuracy: expected is +0.0100, "
        "and less than +0.0300 with 80 % confidence."
    )


def test_rounds_have_forecasts_from_the_third_on(planned: Result) -> None:
    assert [record.forecast is not None for record in planned.rounds] == [False, False, True, True]
    assert ["forecast" in event for event in events(planned.folder, "round")] == [False, False, True, True]


def test_a_stopped_run_is_finished_and_asks_for_no_more_labels(stopped: Result, planned: Result) -> None:
    assert (stopped.status, len(stopped.rounds)) == ("finished", 3)
    assert stopped.rounds[-1].forecast == planned.rounds[2].forecast
    notes = [event["note"] for event in events(stopped.folder, "note")]
    assert notes[-1].startswith("The run stopped after round 3 of 4. Another 5 labels a site are unlikely")
    for site in (stopped.folder / "sites").iterdir():
        assert len(labels(site / "site.sqlite")) == 15


def test_a_plain_resume_says_why_and_changes_nothing(stopped: Result) -> None:
    before, state = fingerprint(stopped.folder), Journal(stopped.folder).load()
    listener = Listener()
    again = resume(stopped.folder, callback=listener)
    assert len(again.rounds) == 3
    assert any(note.startswith("The run stopped after round 3 of 4.") for note in listener.notes)
    assert differences(before, fingerprint(stopped.folder)) == []
    assert Journal(stopped.folder).load() == state


def test_without_the_limit_it_continues_as_if_there_had_been_none(stopped: Result, planned: Result) -> None:
    feal.resume(stopped.folder, stop_below=None)
    assert differences(fingerprint(planned.folder), fingerprint(stopped.folder)) == []


def test_more_rounds_continue_it_and_it_may_stop_again(stopped: Result) -> None:
    longer = feal.resume(stopped.folder, rounds=6)
    assert (longer.status, len(longer.rounds)) == ("finished", 4)
    assert Journal(stopped.folder).load().stopped == Stop(rounds=6, bound=longer.rounds[-1].forecast.bound)  # type: ignore[union-attr]


def test_a_limit_that_is_never_reached_changes_no_bit(planned: Result, tmp_path: Path) -> None:
    run = start(tiny(rounds=4, stop_below=1e-9), out=tmp_path / "run")
    assert differences(fingerprint(planned.folder), fingerprint(run.folder)) == ["config.yaml"]


class KilledWhile(NullCallback):
    """Interrupts the run at a reply to the end of round 3."""

    def __init__(self, at: int) -> None:
        self.left = at

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        if round == 3 and doing in ("evaluating", "selecting"):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt


@pytest.mark.parametrize("at", [0, 1])
def test_killed_while_it_is_decided_it_stops_all_the_same(stopped: Result, at: int, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        start(tiny(rounds=4, stop_below=0.9), out=killed, callback=KilledWhile(at))
    resume(killed)
    assert differences(fingerprint(stopped.folder), fingerprint(killed)) == []


@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_before_or_after_the_decision_it_goes_on_all_the_same(
    planned: Result, at: int, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        start(tiny(rounds=4, stop_below=1e-9), out=killed, callback=KilledWhile(at))
    resume(killed)
    assert differences(fingerprint(planned.folder), fingerprint(killed)) == ["config.yaml"]


def test_a_sweep_counts_a_stopped_run_as_finished(stopped: Result) -> None:
    run = SweepRun(folder=stopped.folder, settings=tiny(rounds=4, stop_below=0.9))
    assert run.is_finished
    assert not SweepRun(folder=stopped.folder, settings=tiny(rounds=5, stop_below=0.9)).is_finished
