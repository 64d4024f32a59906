"""Tables as people write them, and labels as people word them."""

import contextlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feal.annotation.answers import parse_label, read_sheet
from feal.errors import FealError

CLASSES = ("nevus", "melanoma", "Bowen's")


def _sheet(folder: Path, content: bytes) -> list[tuple[int, str, str]]:
    path = folder / "answers.csv"
    path.write_bytes(content)
    lines = read_sheet(path, needed=("sample", "label"), optional=("by",))
    return [(line.number, line.cells["sample"], line.cells["label"]) for line in lines]


def _problem(folder: Path, content: bytes) -> str:
    with pytest.raises(FealError) as refused:
        _sheet(folder, content)
    return str(refused.value)


@pytest.mark.parametrize(
    "content",
    [
        b"sample,label\na,1\nb,2\n",
        b"\xef\xbb\xbfsample,label\r\na,1\r\nb,2\r\n",
        b"sample;label\na;1\nb;2",
        b"sample\tlabel\ra\t1\rb\t2\r",
        "sample\tlabel\r\na\t1\r\nb\t2\r\n".encode("utf-16"),
        b"rank,LABEL, Sample ,score\n1,1,a,0.5\n2,2,b,0.4\n",
        b'"sample","label"\n"a","1"\n"b","2",,,\n',
        b"sample,label,note\na,1,caf\xe9\nb,2,\n",
    ],
)
def test_every_form_of_a_table(tmp_path: Path, content: bytes) -> None:
    assert _sheet(tmp_path, content) == [(2, "a", "1"), (3, "b", "2")]


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    content = b'sample,label\n\n"a\nb",1\n , \nc,2\n'
    assert _sheet(tmp_path, content) == [(3, "a\nb", "1"), (6, "c", "2")]


def test_short_lines_are_empty_and_long_ones_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sample,label\na\nb,c,1\n")
    short, long = read_sheet(path, needed=("sample", "label"))
    assert (short.cells, short.problem) == ({"sample": "a", "label": ""}, "")
    assert "more cells than the 2 columns" in long.problem


def test_latin_1_letters(tmp_path: Path) -> None:
    assert _sheet(tmp_path, "sample,label\nMüller,1\n".encode("latin-1")) == [(2, "Müller", "1")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"sample,class\na,1\n", "no column 'label' (found: sample, class)"),
        (b"label\n1\n", "no column 'sample'"),
        (b"sample,label,Label\na,1,2\n", "'label' occurs twice"),
        (b"sample,label\na,1\0\n", "NUL"),
        (b"PK\x03\x04\x00\x00", "NUL"),
        (b'sample,label\na,1\n"b,2\n', "From line 3 on"),
        (b'sample,label\n"a"b,1\n', "From line 2 on"),
        (b"\xff\xfes\x00a\x00m", "truncated"),
        (b"sample,label\na," + b"1" * 200_000, "From line 2 on"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in _problem(tmp_path, content)


def test_a_file_that_is_no_table_at_all(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="cannot be read"):
        read_sheet(tmp_path, needed=("sample",))


@given(st.binary(max_size=200) | st.text(alphabet='ab,;\t\n\r"1', max_size=60).map(str.encode))
def test_no_bytes_crash_it(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        for head in (b"", b"sample,label\n"):
            with contextlib.suppress(FealError):
                assert all(isinstance(number, int) for number, _, _ in _sheet(Path(folder), head + content))


@pytest.mark.parametrize(
    ("text", "number"),
    [("nevus", 0), (" MELANOMA\t", 1), ("bowen's", 2), ("2", 2), ("02", 2), ("1.0", 1), ("0.", 0)],
)
def test_names_and_numbers(text: str, number: int) -> None:
    assert parse_label(text, CLASSES) == number


@pytest.mark.parametrize("text", ["cannot", "Cannot be labelled", " UNLABELABLE "])
def test_cannot_is_no_label(text: str) -> None:
    assert parse_label(text, CLASSES) is None


def test_a_name_counts_before_a_number_and_before_cannot() -> None:
    assert parse_label("1", ("2", "1", "0")) == 1
    assert parse_label("0", ("2", "1", "0")) == 2
    assert parse_label("cannot", ("can", "cannot")) == 1
    assert parse_label("a", ("A", "a")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3", "There is no class 3: write a number from 0 to 2"),
        ("9" * 5000, "There is no class 999"),
        ("melanma", "did you mean 'melanoma'?"),
        ("-1", "There is no class '-1'"),
        ("1.5", "There is no class '1.5'"),
        ("²", "a number from 0 to 2"),
        ("x" * 5000, "..."),
    ],
)
def test_what_is_no_class_is_said(text: str, said: str) -> None:
    with pytest.raises(FealError) as refused:
        parse_label(text, CLASSES)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 250


def test_two_classes_that_differ_in_case_are_not_guessed_between() -> None:
    with pytest.raises(FealError, match="no class 'AB'"):
        parse_label("AB", ("ab", "Ab", "c"))
