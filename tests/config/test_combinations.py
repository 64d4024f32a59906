from pathlib import Path

import pytest

from feal.config import combinations, load
from feal.config.combinations import planned, split_values
from feal.errors import FealError

OWN = """
from feal.selection.strategies.entropy import Entropy
class Mine(Entropy):
    query_models = ("global", "local")
"""


def test_every_valid_combination_has_a_readable_name() -> None:
    found = combinations(
        "demo",
        ["strategy=feal,entropy,random,full,kafal,logo", "query_model=global,local,ensemble", "seed=0,1"],
    )
    once = [f"{name}/seed-{seed}" for name in ("feal", "random", "full", "kafal", "logo") for seed in (0, 1)]
    thrice = [f"entropy-{model}/seed-{seed}" for model in ("global", "local", "ensemble") for seed in (0, 1)]
    assert sorted(found) == sorted([*once, *thrice])
    settings = found["entropy-ensemble/seed-1"]
    assert (settings.strategy, settings.query_model, settings.seed) == ("entropy", "ensemble", 1)
    assert found["random/seed-0"].query_model is None


def test_what_has_several_values_is_in_the_name_and_what_has_one_is_not() -> None:
    found = combinations("demo", ["strategy=feal", "selection.tau=0.5,0.85", "budget=8", "training.lr=1e-3"])
    assert list(found) == ["feal-selection.tau=0.5/seed-0", "feal-selection.tau=0.85/seed-0"]
    assert {(settings.budget, settings.training.lr) for settings in found.values()} == {(8, 1e-3)}


def test_lists_are_values_too() -> None:
    found = combinations("demo", ["selection.terms=[aleatoric-global,aleatoric-local],[aleatoric-local]"])
    assert {name: settings.selection.terms for name, settings in found.items()} == {
        "feal-selection.terms=aleatoric-global+aleatoric-local/seed-0": ("aleatoric-global", "aleatoric-local"),
        "feal-selection.terms=aleatoric-local/seed-0": ("aleatoric-local",),
    }
    assert list(combinations("demo", ["sites=[alder,birch]"])) == ["feal/seed-0"]


def test_what_comes_to_the_same_runs_once() -> None:
    assert list(combinations("demo", ["strategy=full,random", "budget=4,8", "seed=3,3"])) == [
        "full-budget=all/seed-3",
        "random-budget=4/seed-3",
        "random-budget=8/seed-3",
    ]


def test_what_a_strategy_does_not_heed_it_runs_once_as_the_preset_has_it() -> None:
    words = ["strategy=feal,random,full,gradnorm", "selection.n=3,9", "selection.scope=all,head", "seed=0,1"]
    plan = planned("demo", words)
    feal = [f"feal-selection.n={n}" for n in (3, 9)]
    gradnorm = [f"gradnorm-global-selection.scope={scope}" for scope in ("all", "head")]
    arms = [*feal, "random", "full", *gradnorm]
    assert sorted(plan.runs) == sorted(f"{arm}/seed-{seed}" for arm in arms for seed in (0, 1))
    assert plan.runs["random/seed-0"] == load("demo", {"strategy": "random"})
    assert plan.notes == (
        "feal, random, full: once for all values of selection.scope, which change nothing.",
        "random, full, gradnorm: once for all values of selection.n, which change nothing.",
    )


def test_what_the_loss_does_not_heed_is_run_once_too() -> None:
    plan = planned("demo", ["strategy=random", "loss=plain,evidential", "evidence.lambda=0.1,0.2"])
    assert list(plan.runs) == [
        "random-loss=plain/seed-0",
        "random-loss=evidential-evidence.lambda=0.1/seed-0",
        "random-loss=evidential-evidence.lambda=0.2/seed-0",
    ]
    assert plan.notes == ("random plain: once for all values of evidence.lambda, which change nothing.",)


def test_a_combination_that_is_not_valid_is_left_out_and_counted() -> None:
    plan = planned("demo", ["training.trainable=all,head", "weights=none,imagenet", "model=efficientnet-b0"])
    assert list(plan.runs) == [
        "feal-training.trainable=all-weights=none/seed-0",
        "feal-training.trainable=all-weights=imagenet/seed-0",
        "feal-training.trainable=head-weights=imagenet/seed-0",
    ]
    (note,) = plan.notes
    assert note.startswith("1 combination is left out as not valid, such as training.trainable=head weights=none")
    assert "freezes weights that nobody trained" in note


def test_a_preset_s_query_model_is_for_strategies_that_take_it(tmp_path: Path) -> None:
    preset = tmp_path / "mine.yaml"
    preset.write_text("dataset: synthetic-lesions\nmodel: tiny-cnn\nstrategy: entropy\nquery_model: local\n")
    assert list(combinations(str(preset), ["strategy=entropy,random"])) == [
        "entropy-local/seed-0",
        "random/seed-0",
    ]
    assert list(combinations(str(preset), [])) == ["entropy-local/seed-0"]


def test_a_query_model_that_a_strategy_does_not_take_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    own = f"strategy={tmp_path}/mine.py:Mine"
    assert list(combinations("demo", [own, "query_model=global,ensemble,local"])) == [
        "Mine-global/seed-0",
        "Mine-local/seed-0",
    ]
    with pytest.raises(FealError, match="takes global or local as query_model, not ensemble"):
        combinations("demo", [own, "query_model=ensemble"])


def test_strategies_of_the_same_name_keep_apart(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text(OWN)
    found = combinations("demo", [f"strategy={tmp_path}/one.py:Mine,{tmp_path}/other.py:Mine"])
    assert len(found) == 2
    assert all(name.startswith("Mine-global/seed-0-") for name in found)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a, b", ["a", "b"]),
        ("[a,b]", ["[a,b]"]),
        ("[a,b],[c,[d,e]]", ["[a,b]", "[c,[d,e]]"]),
        ("{a: 1, b: 2},3", ["{a: 1, b: 2}", "3"]),
        ("'a,b',\"c,d\"", ["'a,b'", '"c,d"']),
        ("['a]',b],c", ["['a]',b]", "c"]),
        ("it's,that's", ["it's", "that's"]),
        ("", [""]),
        ("a,", ["a", ""]),
    ],
)
def test_commas_inside_brackets_and_quotes_belong_to_a_value(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed=0,,1"], "'seed=0,,1' lacks a value"),
        (["seed="], "'seed=' lacks a value"),
        (["seed=0", "seed=1"], "seed is given twice: write all its values at once"),
        (["seed"], "'seed' is no setting"),
        (["sites=[a,b"], "do not close"),
        (["strategy='feal"], "do not close"),
        (["strategy=faal,random"], "did you mean 'feal'"),
        (["sede=0,1"], "did you mean 'seed'"),
        (["strategy=entropy", "query_model=global,locl"], "did you mean 'local'"),
        (["strategy=feal", "query_model=locl"], "did you mean 'local'"),
        (["seed=0,one"], "seed=one in the overrides is not valid"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(FealError, match=said):
        combinations("demo", words)
