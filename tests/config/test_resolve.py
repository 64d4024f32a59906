from pathlib import Path

import pytest
import yaml

from feal.config import known_keys, known_parameters, load, parse, preset_names, revise
from feal.errors import FealError

LASTING = [
    "dataset",
    "model",
    "strategy",
    "loss",
    "transport",
    "metrics",
    "annotator",
    "device",
    "threads",
    "seed",
    "rounds",
    "communication_rounds",
    "budget",
    "max_labelled_fraction",
    "initial_labels",
    "class_count_scope",
    "restart",
    "participation",
    "quorum",
    "evaluate_every",
    "training.lr",
    "training.batch_size",
    "training.local_epochs",
    "training.weight_decay",
    "training.trainable",
    "training.views",
    "weights",
    "loss.lambda",
    "loss.activation",
    "loss.annealing",
    "loss.squared",
    "loss.class_weight",
    "strategy.n",
    "strategy.tau",
    "strategy.rule",
    "strategy.calibration",
    "strategy.terms",
    "strategy.query_model",
    "strategy.scope",
    "strategy.local",
    "dataset.sites",
    "transport.workers",
    "transport.coordinator",
    "annotator.min_share",
    "selection.batch_size",
    "selection.candidates",
]


@pytest.mark.parametrize("key", LASTING)
def test_lasting_keys_exist_and_are_described(key: str) -> None:
    assert {**known_keys(), **known_parameters()}[key]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads(name: str) -> None:
    # The encoder of these comes from a package that no extra installs.
    load(name, {"model.encoder": "efficientnet-lite0"} if name.startswith("recommended") else {})


def test_overrides_win_dotted_or_nested() -> None:
    words = parse(["seed=3", "training.lr=1e-3", "loss.lambda=0.5", "strategy.terms=[aleatoric-local]"])
    settings = load("demo", words)
    assert settings.seed == 3
    assert settings.training.lr == 1e-3
    assert settings.loss.params["lambda"] == 0.5
    assert settings.strategy.params["terms"] == ["aleatoric-local"]
    assert load("demo", {"training": {"lr": 1e-3}}).training.lr == 1e-3
    assert load("demo", {"training": {"lr": 1e-3}}).training.batch_size == load("demo").training.batch_size


def test_a_budget_is_a_number_or_a_share() -> None:
    assert load("demo", parse(["budget=7"])).budget == 7
    assert load("demo", parse(["budget=0.07"])).budget == 0.07
    assert load("demo", parse(["budget=7e-2"])).budget == 0.07


def test_the_strategy_brings_its_loss() -> None:
    assert load("demo").loss_name == "evidential"
    assert load("demo", {"strategy": "random"}).loss_name == "plain"
    assert load("demo", {"strategy": "random", "loss": "evidential"}).loss_name == "evidential"


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"dataset": "synthetic-lesions", "model": "tiny-cnn", "seed": 4}))
    assert load(str(path)).seed == 4


def test_dumped_settings_load_again(tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(yaml.safe_dump(load("demo").dump()))
    assert load(str(path)) == load("demo")


def test_identity_is_of_what_decides_the_bits() -> None:
    first = load("demo")
    assert load("demo", {"rounds": 9, "quorum": 1, "data": "x"}).identity() == first.identity()
    for change in (
        {"seed": 1},
        {"training.lr": 1e-4},
        {"threads": 2},
        {"strategy": "random"},
        {"transforms.flips": True},
    ):
        assert load("demo", change).identity() != first.identity()


def test_round_timeout_needs_an_engine_that_can_stop_a_site() -> None:
    with pytest.raises(FealError, match="use transport=flower or flower-simulation, or set"):
        load("demo", {"round_timeout": 60})
    with pytest.raises(FealError, match="takes no round_timeout"):
        revise(load("demo"), {"round_timeout": 60})
    assert load("demo", {"transport": "flower-simulation", "round_timeout": 60}).round_timeout == 60


def test_a_synthetic_set_is_drawn_in_the_size_asked_for() -> None:
    assert load("demo", {"dataset.size": 40}).dataset.params["size"] == 40
    small = load("fed-isic-small")
    assert small.dataset.params["size"] == 128
    assert load("fed-isic-small", {"dataset.size": 96}).identity() != small.identity()


@pytest.mark.parametrize(
    ("preset", "words", "sentence"),
    [
        ("demo", ["dataset.size=1000"], r"dataset.size=1000 is not valid: it should be less than or equal to 512"),
        (
            "demo",
            ["dataset=fed-isic", "dataset.size=7"],
            r"size=7 is not valid: it should be greater than or equal",
        ),
        ("demmo", [], r"no preset 'demmo': did you mean 'demo'\?"),
        ("no/such.yaml", [], "There is no file no/such.yaml"),
        ("demo", ["strategy=faal"], "no strategy 'faal': did you mean 'feal'"),
        ("demo", ["model=tiny-cn"], "did you mean 'tiny-cnn'"),
        ("demo", ["dataset=synthetic-lesion"], "did you mean 'synthetic-lesions'"),
        ("demo", ["transport=inprocess"], "did you mean 'in-process'"),
        ("demo", ["annotator=orakel"], "did you mean 'oracle'"),
        ("demo", ["trainin.lr=1"], r"'trainin.lr': did you mean 'training.lr'"),
        ("demo", ["budgets=5"], "did you mean 'budget'"),
        ("demo", ["budget"], "write KEY=VALUE"),
        ("demo", ["seed=[1"], "cannot be read"),
        ("demo", ["budget=0"], "budget=0 .* greater than"),
        ("demo", ["budget=-5"], "budget=-5 .* not valid"),
        ("demo", ["budget=1.5"], "budget=1.5 .* not valid"),
        ("demo", ["budget=1.0"], "budget=1.0 .* not valid"),
        ("demo", ["budget=true"], "budget=True .* not valid"),
        ("demo", ["strategy.tau=2"], "strategy.tau=2 .* less than or equal to 1"),
        ("demo", ["rounds=-1"], "rounds=-1 .* greater than or equal to 1"),
        ("demo", ["rounds=two"], "rounds=two .* valid integer"),
        ("demo", ["training.lr=fast"], "training.lr=fast .* valid number"),
        ("demo", ["training.lr=.nan"], "training.lr=nan .* finite number"),
        ("demo", ["training=5"], "'training'"),
        ("demo", ["strategy.rule=some"], "strategy.rule=some .* 'nearest', 'all' or 'none'"),
        (
            "demo",
            ["strategy.terms=[]"],
            r"terms=\[\] .* it should name at least one \(terms .*: epistemic-global, ",
        ),
        (
            "demo",
            ["strategy=~nobody-here/mine.py:Mine"],
            "~nobody-here/mine.py is not a valid path .*: write it in full",
        ),
        ("demo", ["weights=~nobody-here/w.pt"], "weights=~nobody-here/w.pt is not a valid path"),
        ("demo", ["strategy.query_model=local"], "Strategy feal has no parameter 'query_model'"),
        ("demo", ["device=cuda"], "torch sees no GPU"),
    ],
)
def test_mistakes_are_one_sentence(preset: str, words: list[str], sentence: str) -> None:
    with pytest.raises(FealError, match=sentence) as caught:
        load(preset, parse(words))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "no valid YAML"),
        ("- 1", "holds no settings"),
        ("dataset: synthetic-lesions", "'model' is missing in preset"),
        (
            "dataset: synthetic-lesions\nmodel: tiny-cnn\nsede: 1",
            "in preset .* called 'sede': did you mean 'seed'",
        ),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(FealError, match=sentence):
        load(str(path))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"weights": "imagenet"}, "no ImageNet weights for tiny-cnn, only for densenet-121, efficientnet-b0"),
        ({"weights": "absent.pth"}, "There is no file of weights .*absent.pth: weights is none, imagenet or such"),
        (
            {"training.trainable": "tail"},
            "trainable=tail freezes weights that were never trained: set weights=imagenet",
        ),
        (
            {"model": "unet", "dataset": "synthetic-polyps", "training.trainable": "head"},
            "unet has no head that can be trained alone: set training.trainable to all, or take frozen.$",
        ),
        (
            {"model": "unet", "dataset": "synthetic-polyps", "training.trainable": "tail"},
            "unet has no tail that can be trained alone: set training.trainable to all, or take unet-lite0.$",
        ),
        (
            {"model": "unet-lite0", "dataset": "synthetic-polyps", "training.trainable": "head"},
            "unet-lite0 has no head that can be trained alone: set training.trainable to all or tail, or take",
        ),
        (
            {
                "model": "efficientnet-lite0",
                "weights": "imagenet",
                "training.trainable": "head",
                "transforms.flips": True,
            },
            "trains on training.views of each image, not on transforms: "
            "leave all of them but transforms.normalise and a crop of the centre out",
        ),
        (
            {
                "model": "efficientnet-lite0",
                "weights": "imagenet",
                "training.trainable": "head",
                "transforms.crop": 16,
            },
            "trains on training.views of each image, not on transforms",
        ),
        ({"training.views": 2}, "training.views are for training.trainable=tail or head"),
        ({"weights_digest": "abc"}, "weights_digest is recorded when a run starts"),
        ({"weights": "~nosuch/x.pth"}, "weights=~nosuch/x.pth is not a valid path .*: write it in full"),
        ({"data": "~nosuch/x"}, "data=~nosuch/x is not a valid path .*: write it in full"),
        ({"training.trainable": "neck"}, "training.trainable"),
        ({"training.views": 9}, "training.views"),
    ],
)
def test_weights_and_parts_that_cannot_be(overrides: dict[str, object], sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        load("demo", overrides)


def test_a_file_of_weights_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some.pth").touch()
    monkeypatch.chdir(tmp_path)
    assert load("demo", {"weights": "some.pth"}).weights == str(tmp_path / "some.pth")
