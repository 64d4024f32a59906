"""What a strategy is given and may return, and strategies by name: registered, in a file, in a module."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

from feal.config import load
from feal.errors import FealError
from feal.plugins import qualify_name, short_name
from feal.selection import STRATEGIES, Columns, Selection, find_strategy, validate_selection
from feal.selection.strategies.random import Random
from feal.testing import name_of

POOL = Columns(["a", "b", "c"], {})


def choice(*ids: str, score: list[float] | None = None) -> Selection:
    return Selection(ids=list(ids), parts={"score": torch.tensor(score or [1.0] * len(ids))})


def test_columns_are_sorted_by_id_with_their_values() -> None:
    columns = Columns(["c", "a", "b"], {"x": torch.tensor([3.0, 1.0, 2.0]), "wide": torch.eye(3)})
    assert columns.ids == ["a", "b", "c"]
    assert columns["x"].tolist() == [1, 2, 3]
    assert torch.equal(columns["wide"], torch.eye(3)[[1, 2, 0]])


def test_sorted_columns_are_not_copied() -> None:
    values = {"x": torch.zeros(2)}
    assert Columns(["a", "b"], values)["x"] is values["x"]


def test_an_empty_pool_has_empty_columns() -> None:
    assert Columns([], {})["anything"].shape == (0,)


@pytest.mark.parametrize("ids", [("a", "b"), ("c", "a")])
def test_a_good_choice_passes(ids: tuple[str, ...]) -> None:
    validate_selection(choice(*ids), POOL, 2, strategy="Mine")
    validate_selection(choice("a", "b", "c"), POOL, 9, strategy="Mine")
    validate_selection(Selection(ids=[]), POOL, 0, strategy="Mine")


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (choice("a"), "Strategy Mine chose 1 samples, 1 different ones of the pool, where 2 were asked for"),
        (choice("a", "b", "c"), "chose 3 samples"),
        (choice("a", "a"), "chose 2 samples, 1 different"),
        (choice("a", "z"), "chose 2 samples, 1 different"),
        (Selection(ids=["a", "b"]), "without a part called score"),
        (choice("a", "b", score=[1.0]), "gave 1 numbers as score"),
        (choice("a", "b", score=[1.0, float("nan")]), "gave sample b a score that is not finite"),
    ],
)
def test_a_bad_choice_is_one_sentence(bad: Selection, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        validate_selection(bad, POOL, 2, strategy="Mine")


MINE = """
from feal.selection import STRATEGIES
from feal.selection.strategies.random import Random

@STRATEGIES.register("{name}", summary="mine")
class Mine(Random):
    pass

class Number(int):
    pass
"""


@pytest.fixture(autouse=True)
def _nothing_registered_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_entries", "_summaries"):
        monkeypatch.setattr(STRATEGIES, table, dict(getattr(STRATEGIES, table)))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_strategy.py"
    path.write_text(MINE.format(name=f"mine {tmp_path}"))
    return path


def test_a_registered_name() -> None:
    assert find_strategy("random") is Random
    with pytest.raises(FealError, match="There is no strategy 'fael': did you mean 'feal'"):
        find_strategy("fael")


def test_a_file_is_one_module_however_it_is_named(file: Path) -> None:
    mine = find_strategy(f"{file}:Mine")
    assert issubclass(mine, Random)
    assert find_strategy("my_strategy.py:Mine") is mine
    assert find_strategy(qualify_name("my_strategy:Mine")) is mine
    assert name_of(mine) == f"{file}:Mine"


def test_the_configuration_holds_a_name_that_is_found_from_any_folder(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("my_strategy:Mine", "my_strategy.py:Mine", "./my_strategy.py:Mine"):
        assert load("demo", {"strategy": name}).strategy.name == f"{file}:Mine"
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert load("demo", {"strategy": f"{file}:Mine"}).loss_name == "plain"


def test_an_installed_module_keeps_its_name() -> None:
    name = "feal.selection.strategies.random:Random"
    assert qualify_name(name) == name
    assert find_strategy(name) is Random
    assert load("demo", {"strategy": name}).strategy.name == name


def test_it_is_called_by_its_class() -> None:
    assert short_name("/somewhere/file.py:Mine") == "Mine"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent.py:Mine", "There is no file .*absent.py for a strategy: check the path"),
        ("absent_module:Mine", "There is no module absent_module for a strategy"),
        ("my_strategy.py:Mime", "called 'Mime': did you mean 'Mine'"),
        ("my_strategy.py:Number", "Number of .* is no strategy: derive it from feal.selection.Strategy"),
        ("my_strategy.py", "is a file: name the strategy in it, too, as my_strategy.py:Class"),
        (":Mine", "There is no module  for a strategy"),
        ("..:Mine", "There is no module .. for a strategy"),
    ],
)
def test_what_is_not_there_is_one_sentence(file: Path, name: str, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        find_strategy(name)
    with pytest.raises(FealError, match=sentence):
        load("demo", {"strategy": name})


def test_a_file_that_was_imported_before_is_not_run_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(file.parent))
    module = importlib.import_module("my_strategy")
    monkeypatch.delitem(sys.modules, "my_strategy")
    monkeypatch.setitem(sys.modules, "my_strategy", module)
    assert find_strategy(f"{file}:Mine") is module.Mine
    # A file on the search path because it lies in this folder is still found by its whole path elsewhere.
    assert qualify_name("my_strategy:Mine") == f"{file}:Mine"


def test_models_nobody_has_are_refused_before_the_run(file: Path) -> None:
    file.write_text(MINE.format(name="odd").replace("    pass", "    roles = frozenset({'globl'})", 1))
    with pytest.raises(FealError, match="needs the models globl: there are global, local"):
        load("demo", {"strategy": f"{file}:Mine"})


def test_a_file_that_breaks_says_where_and_can_be_mended(file: Path) -> None:
    broken = file.with_name("broken.py")
    broken.write_text("import feal\n\n1 / 0\n")
    sentence = "cannot be imported (ZeroDivisionError: division by zero; broken.py, line 3): mend it."
    with pytest.raises(FealError, match=re.escape(sentence)):
        find_strategy("broken.py:Mine")
    broken.write_text(MINE.format(name=f"mended {broken}"))
    assert find_strategy("broken.py:Mine").__name__ == "Mine"


def test_half_a_strategy_is_refused(file: Path) -> None:
    half = file.with_name("half.py")
    half.write_text("from feal.selection import Strategy\n\nclass Half(Strategy):\n    observe = None\n")
    with pytest.raises(FealError, match="The strategy Half of half.py lacks choose"):
        find_strategy("half.py:Half")


def test_nothing_is_added_to_the_search_path(file: Path) -> None:
    before = list(sys.path)
    find_strategy("my_strategy.py:Mine")
    assert sys.path == before
