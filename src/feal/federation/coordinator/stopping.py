"""Predict what the next round would bring, and decide whether it is worth its labels."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from feal.metrics import Statistics, primary_metric
from feal.metrics.learning_curve import MIN_ROUNDS, STOP_CONFIDENCE, predict_gain, sampling_error
from feal.metrics.registry import title_of
from feal.metrics.statistics import pool
from feal.rundir.journal import State, Stop
from feal.rundir.records import GainForecast, Round
from feal.settings import Settings


def forecast_gain(
    rounds: Sequence[Round], task: str, by_site: Mapping[str, Statistics | None]
) -> GainForecast | None:
    """Predict the gain in the pooled primary metric by as many labels as the last round's.

    Args:
        rounds: the records of all rounds so far.
        task: classification or segmentation.
        by_site: the sites' sums over their test samples in the last of them, for its sampling error.

    Returns:
        None with too few rounds, without the metric, or if the last round brought no labels.
    """
    metric = primary_metric(task)
    totals = [sum(record.labels.values()) for record in rounds]
    if len(rounds) < MIN_ROUNDS or totals[-1] <= totals[-2]:
        return None
    # A site's absence can lower the total: rounds with as many labels as a later one do not count.
    used = [at for at, total in enumerate(totals) if all(total < later for later in totals[at + 1 :])]
    pooled = [record.metrics[metric].pooled if metric in record.metrics else None for record in rounds]
    curve = [(totals[at], value) for at in used if (value := pooled[at]) is not None]
    if len(curve) < MIN_ROUNDS or pooled[-1] is None:
        return None
    labels, values = zip(*curve, strict=True)
    new = totals[-1] - totals[-2]
    predicted = predict_gain(labels, values, totals[-1] + new, noise=sampling_error(_shares(task, by_site)))
    return GainForecast(metric=metric, labels=new / len(rounds[-1].labels), **asdict(predicted))


def describe_forecast(forecast: GainForecast, *, stop_below: float | None = None) -> str:
    """Describe a forecast in one sentence; `stop_below` if the run ended by it.

    >>> values = {"gain": 0.021, "low": 0.004, "high": 0.038, "bound": 0.025}
    >>> describe_forecast(GainForecast(metric="balanced_accuracy", labels=12.0, **values))
    'Another 12 labels a site are expected to bring +0.021 [+0.004, +0.038] balanced accuracy.'
    """
    labels = f"{forecast.labels:.0f}" if forecast.labels >= 1 else f"{forecast.labels:.1f}"
    labels = f"{labels} label{'s' * (labels != '1')} a site {'is' if labels == '1' else 'are'}"
    title = title_of(forecast.metric)
    if stop_below is None:
        interval = f"[{forecast.low:+.3f}, {forecast.high:+.3f}]"
        return f"Another {labels} expected to bring {forecast.gain:+.3f} {interval} {title}."
    return (
        f"Another {labels} unlikely to bring {stop_below:g} {title}: expected is {forecast.gain:+.4f}, "
        f"and less than {forecast.bound:+.4f} with {100 * STOP_CONFIDENCE:.0f} % confidence."
    )


def may_stop(state: State, settings: Settings) -> bool:
    """Return whether it is still to be decided if the run ends after the round that is being closed."""
    is_due = MIN_ROUNDS <= state.round < settings.rounds and state.cleared < state.round
    return is_due and settings.stop_below is not None


def find_stop(record: Round, settings: Settings) -> Stop | None:
    """Return why the run ends after a round; None if it goes on."""
    limit, forecast = settings.stop_below, record.forecast
    if limit is None or forecast is None or forecast.bound >= limit:
        return None
    return Stop(rounds=settings.rounds, bound=forecast.bound)


def _shares(task: str, by_site: Mapping[str, Statistics | None]) -> list[tuple[float, int]]:
    """Return what the primary metric is the mean of: recalls of classes or Dice of regions, with their samples."""
    pooled = pool({site: statistics for site, statistics in by_site.items() if statistics is not None})
    if pooled is None:
        return []
    if task == "segmentation":
        regions = pooled.regions.values()
        return [(region.dice / region.count, region.count) for region in regions if region.count]
    rows = zip(pooled.recall, map(sum, pooled.confusion), strict=True)
    return [(recall, samples) for recall, samples in rows if recall is not None]
