from pathlib import Path

import pytest
import yaml
from pydantic import Field

from feal.config import applicable, load, parse, revise
from feal.config.overrides import RENAMED
from feal.errors import FealError
from feal.selection import STRATEGIES
from feal.selection.strategies.random import Random
from feal.settings import Component, Settings, flatten, nest


def test_a_component_is_written_short_nested_or_by_dotted_names() -> None:
    nested = load("demo", {"strategy": {"name": "feal", "tau": 0.5}})
    assert load("demo", {"strategy": "feal", "strategy.tau": 0.5}) == nested
    assert load("demo", parse(["strategy=feal", "strategy.tau=0.5"])) == nested
    assert load("demo", parse(["strategy={name: feal, tau: 0.5}"])) == nested
    assert load("demo", {"strategy.tau": 0.5}) == nested
    assert nested.strategy.params["tau"] == 0.5


def test_the_written_configuration_has_every_parameter(tmp_path: Path) -> None:
    settings = load("demo", {"strategy": "gradnorm"})
    assert settings.strategy.params == {"query_model": "global", "scope": "all"}
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(settings.dump()))
    assert load(str(again)) == settings
    assert Settings.model_validate(settings.dump()) == settings


def test_parameters_of_a_preset_belong_to_the_class_that_it_names() -> None:
    assert load("demo-polyps").strategy.params["n"] == 10
    assert load("demo-polyps", {"strategy": "feal"}).strategy.params["n"] == 10
    assert load("demo-polyps", {"strategy": "random"}).strategy.params == {}
    assert load("demo-polyps", {"dataset": "synthetic-lesions"}).dataset.params["train"] == 600


def test_parameters_without_a_class_apply_to_any_that_has_them() -> None:
    # The preset says loss: {class_weight: inverse} and leaves the loss to the strategy.
    for strategy, loss in (("feal", "evidential"), ("random", "plain")):
        settings = load("demo", {"strategy": strategy})
        assert (settings.loss_name, settings.loss and settings.loss.params["class_weight"]) == (loss, "inverse")
    assert load("demo", {"strategy": "strata"}).loss == Component(name="balanced")


def test_a_changed_parameter_changes_the_identity() -> None:
    first = load("demo")
    assert load("demo", {"strategy.tau": 0.5}).identity() != first.identity()
    assert load("demo", {"loss.lambda": 0.5}).identity() != first.identity()
    simulated = {"transport": {"name": "flower-simulation", "workers": 2}}
    assert load("demo", simulated).identity() == first.identity()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["strategy.tua=1"], "Strategy feal has no parameter 'tua': did you mean 'tau'?"),
        (["strategy=random", "strategy.tau=1"], "Strategy random has no parameter 'tau': it has none."),
        (["loss.lamda=1"], "Loss evidential has no parameter 'lamda': did you mean 'lambda'?"),
        (["loss=balanced", "loss.weight=1"], "Loss balanced has no parameter 'weight': it has none."),
        (["model.dropot=1"], "Model tiny-cnn has no parameter 'dropot': did you mean 'dropout'?"),
        (["dataset.size=40", "dataset=fed-isic", "dataset.seed=1"], "Dataset fed-isic has no parameter 'seed': "),
        (["transport.workers=2"], "Transport in-process has no parameter 'workers': it has none."),
        (["annotator.min_share=0.5"], "Annotator oracle has no parameter 'min_share': it has none."),
        (["tau=0.9"], "There is no setting 'tau' in the overrides: did you mean 'strategy.tau'?"),
        (["strategy.n=0"], "strategy.n=0 is not valid: it should be greater than or equal to 1 (neighbours"),
        (["strategy=5"], "strategy=5 is not valid: give a name"),
        (["loss.annealing=soon"], "loss.annealing=soon is not valid: it should be a valid integer"),
    ],
)
def test_mistakes_are_one_sentence_of_the_owner(words: list[str], sentence: str) -> None:
    with pytest.raises(FealError) as caught:
        load("demo", parse(words))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("old", RENAMED)
def test_an_earlier_name_is_answered_by_the_one_of_now(old: str) -> None:
    with pytest.raises(FealError, match=f"'{old}' in the overrides is called {RENAMED[old]} now: write"):
        load("demo", parse([f"{old}=1"]))


def test_a_file_with_earlier_names(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("dataset: synthetic-lesions\nmodel: tiny-cnn\nselection:\n  tau: 0.9\n")
    with pytest.raises(FealError, match=r"'selection.tau' in preset .* is called strategy.tau now"):
        load(str(path))


def test_an_unknown_parameter_in_a_file_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("dataset: synthetic-lesions\nmodel: tiny-cnn\nloss:\n  lamda: 0.9\n")
    with pytest.raises(FealError, match="did you mean 'lambda'"):
        load(str(path))


def test_what_applies_is_decided_by_the_class() -> None:
    several = {"strategy": "entropy", "strategy.tau": 0.9, "strategy.query_model": "local", "loss.lambda": 0.1}
    assert applicable("demo", several) == {"strategy": "entropy", "strategy.query_model": "local"}


def test_another_transport_on_resume_has_its_own_parameters() -> None:
    settings = load("demo", {"transport": {"name": "flower-simulation", "workers": 2}})
    assert revise(settings, {"transport": "in-process"}).transport == Component(name="in-process")
    assert revise(settings, {"transport.workers": 3}).transport.params["workers"] == 3
    with pytest.raises(FealError, match="A run's strategy cannot change on resume"):
        revise(settings, {"strategy": "random"})
    with pytest.raises(FealError, match=r"A run's strategy.tau cannot change on resume"):
        revise(settings, {"strategy.tau": 0.3})


def test_nested_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nested(Random):
        class Params(Random.Params):
            weights: dict[str, float] = Field({}, description="by class")

    for table in ("_entries", "_summaries"):
        monkeypatch.setattr(STRATEGIES, table, dict(getattr(STRATEGIES, table)))
    STRATEGIES.register("nested", summary="weights by class")(Nested)
    settings = load("demo", {"strategy": "nested", "strategy.weights.a": 2.0})
    assert settings.strategy.params == {"weights": {"a": 2.0}}
    assert revise(settings, {"rounds": 9}).strategy == settings.strategy
    assert nest(flatten(settings.dump())) == settings.dump()


def test_parameters_of_metrics_are_below_their_names(tmp_path: Path) -> None:
    settings = load("demo-polyps", parse(["metric.hd95.rule=pooled"]))
    assert settings.metric == {"hd95": {"rule": "pooled"}}
    assert settings.dump()["metric"] == {"hd95": {"rule": "pooled"}}
    assert load("demo-polyps", {"metric": {"hd95": {"rule": "pooled"}}}) == settings
    assert load("demo-polyps").metric == {"hd95": {"rule": "largest"}}
    assert load("demo-polyps").identity() != settings.identity()
    assert load("demo").metric == {}
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(settings.dump()))
    assert load(str(again)) == settings
    with pytest.raises(FealError, match=r"A run's metric.hd95.rule cannot change on resume"):
        revise(settings, {"metric.hd95.rule": "largest"})


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("metric.hd95.rul=pooled", "Metric hd95 has no parameter 'rul': did you mean 'rule'?"),
        ("metric.dice.rule=pooled", "Metric dice has no parameter 'rule': it has none."),
        ("metric.hd59.rule=pooled", "no metric of a run for segmentation called 'hd59': did you mean 'hd95'?"),
        (
            "metric.hd95.rule=all",
            "metric.hd95.rule=all is not valid: it should be 'largest' or 'pooled' (largest: ",
        ),
        ("metric.hd95=pooled", "'metric.hd95=pooled' in the overrides is no parameter of a metric: write metric."),
        ("metric=pooled", "'metric=pooled' in the overrides is no parameter of a metric: write metric."),
        ("hd95.rule=pooled", "no setting 'hd95.rule' in the overrides: did you mean 'metric.hd95.rule'?"),
    ],
)
def test_mistakes_in_parameters_of_metrics(word: str, sentence: str) -> None:
    with pytest.raises(FealError) as caught:
        load("demo-polyps", parse([word]))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_metric_of_the_other_task_takes_no_parameters() -> None:
    with pytest.raises(FealError, match="no metric of a run for classification called 'hd95'"):
        load("demo", {"metric.hd95.rule": "pooled"})
