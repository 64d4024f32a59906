"""Answers as files: taken if they can be understood, refused by name if not, and never a crash."""

import csv
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from feal.annotation import ANNOTATORS, FolderAnnotator, PollResult
from feal.data import PreparedSite
from feal.data.images import encode_png, mask_to_pil
from feal.errors import FealError
from tests.annotation.asking import IDS, queries

MASK = (np.arange(24, dtype=np.uint8) % 3).reshape(4, 6)


def _poll(annotator: FolderAnnotator) -> PollResult:
    return annotator.poll(pending=IDS[1:4], answered=IDS[:1])


def _labels(result: PollResult) -> dict[str, object]:
    return {answer.sample: answer.label for answer in result.answers}


def _rejections(result: PollResult) -> list[tuple[str, str]]:
    return [(rejection.where, rejection.written) for rejection in result.rejections]


def _reason(result: PollResult) -> str:
    (rejection,) = result.rejections
    return rejection.reason


def _draw(path: Path, mask: np.ndarray = MASK) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode_png(mask_to_pil(mask, classes=3)))


def test_it_is_known_by_its_name() -> None:
    assert ANNOTATORS.get("folder") is FolderAnnotator


def test_nothing_is_there_before_anybody_answers(labelling: FolderAnnotator, lesions: PreparedSite) -> None:
    assert _poll(labelling) == PollResult(answers=[], rejections=[])
    never_asked = FolderAnnotator(lesions, folder=Path("nowhere"))
    assert never_asked.poll(pending=[], answered=[]) == PollResult(answers=[], rejections=[])
    assert not Path("nowhere").exists()


def test_a_filled_in_copy_of_the_request_is_an_answer(labelling: FolderAnnotator, first: Path) -> None:
    with (first / "request.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, label in zip(rows, ("Melanoma", "2", ""), strict=True):
        row["label"] = label
    with (first / "answers.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    for _ in range(2):
        result = _poll(labelling)
        assert _labels(result) == {"a/1": 1, "a-1": 2}
        assert {answer.by for answer in result.answers} == {"folder"}
        assert result.rejections == []


def test_who_answered(labelling: FolderAnnotator, first: Path) -> None:
    (first / "answers.csv").write_text("sample,label,by\na/1,1, Dr. A \na-1,0,\n")
    assert {answer.sample: answer.by for answer in _poll(labelling).answers} == {"a/1": "Dr. A", "a-1": "folder"}


def test_cannot_be_labelled_is_an_answer(labelling: FolderAnnotator, first: Path) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,CANNOT\n")
    assert _labels(_poll(labelling)) == {"a/1": None}


def test_ids_that_differ_in_case_are_two_samples(labelling: FolderAnnotator, first: Path) -> None:
    (first / "answers.csv").write_text("sample,label\na-1,0\n A-1 ,1\n")
    assert _labels(_poll(labelling)) == {"a-1": 0, "A-1": 1}


def test_the_last_word_counts(labelling: FolderAnnotator, first: Path, second: Path) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,0\na-1,0\nA-1,wrong\na/1,1\na/1,\nA-1,2\n")
    assert _labels(_poll(labelling)) == {"a/1": 1, "a-1": 0, "A-1": 2}
    assert _poll(labelling).rejections == []
    (second / "answers.csv").write_text("sample,label\na-1,2\n")
    assert _labels(_poll(labelling)) == {"a/1": 1, "a-1": 2, "A-1": 2}


def test_a_refused_last_word_does_not_bring_back_what_it_corrects(
    labelling: FolderAnnotator, first: Path, second: Path
) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,0\na-1,0\na-1,nonsense\n")
    (second / "answers.csv").write_text("sample,label\na/1,7\n")
    result = _poll(labelling)
    assert _labels(result) == {}
    assert _rejections(result) == [
        ("round-001/answers.csv, line 4", "a-1"),
        ("round-002/answers.csv, line 2", "a/1"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "a/1,melanom",
            "did you mean 'melanoma'? Available: melanoma, nevus, vascular. Or write a number from 0 to 2",
        ),
        ("a/1,3", "There is no class 3"),
        ("nobody,1", "Sample 'nobody' was never requested"),
        ("s5,1", "Sample 's5' was never requested"),
        (",1", "names no sample"),
        ("a/1,x,y,1", "more cells"),
    ],
)
def test_a_line_is_refused_by_name_and_the_others_are_taken(
    labelling: FolderAnnotator, first: Path, line: str, said: str
) -> None:
    (first / "answers.csv").write_text(f"sample,label\n{line}\nA-1,0\n")
    result = _poll(labelling)
    assert _labels(result) == {"A-1": 0}
    assert _rejections(result) == [("round-001/answers.csv, line 2", line.split(",")[0])]
    assert said in _reason(result)


def test_a_file_is_refused_as_a_whole_and_the_others_are_read(
    labelling: FolderAnnotator, first: Path, second: Path
) -> None:
    (first / "answers.csv").write_text('sample,label\na/1,1\n"a-1,2\n')
    (second / "answers.csv").write_text("sample,label\na/1,0\n")
    result = _poll(labelling)
    assert _labels(result) == {"a/1": 0}
    assert _rejections(result) == [("round-001/answers.csv", "")]
    assert "From line 3 on" in _reason(result)


def test_refusals_are_written_for_people_and_go_when_mended(labelling: FolderAnnotator, first: Path) -> None:
    path = first.parent / "rejected.csv"
    (first / "answers.csv").write_text('sample,label\na/1,"x, ""y"""\n')
    (rejection,) = _poll(labelling).rejections
    with path.open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"where": rejection.where, "sample": rejection.written, "reason": rejection.reason}
        ]
    (first / "answers.csv").write_text("sample,label\na/1,1\n")
    assert _poll(labelling).rejections == []
    assert not path.exists()


def test_labels_in_the_request_itself_are_pointed_out(labelling: FolderAnnotator, first: Path) -> None:
    text = (first / "request.csv").read_text()
    (first / "request.csv").write_text(text.replace(".png,", ".png,1"))
    result = _poll(labelling)
    assert _labels(result) == {}
    assert _rejections(result) == [("round-001/request.csv", "")]
    assert "save the filled-in table as answers.csv" in _reason(result)
    (first / "request.csv").rename(first / "answers.csv")
    assert _labels(_poll(labelling)) == {"a/1": 1, "a-1": 1, "A-1": 1}
    assert _poll(labelling).rejections == []


@pytest.mark.parametrize("name", ["Answers.csv", "answers (1).csv", "answers.xlsx", "001-a-1.png"])
def test_answers_under_another_name_are_pointed_out(labelling: FolderAnnotator, first: Path, name: str) -> None:
    (first / name).write_text("sample,label\na/1,1\n")
    assert _rejections(_poll(labelling)) == [(f"round-001/{name}", "")]


def test_answers_outside_a_round_are_pointed_out(labelling: FolderAnnotator, first: Path) -> None:
    (first.parent / "answers.csv").write_text("sample,label\na/1,1\n")
    assert _rejections(_poll(labelling)) == [("answers.csv", "")]


def test_half_written_and_hidden_files_are_passed_over(
    labelling: FolderAnnotator, drawing: FolderAnnotator, first: Path
) -> None:
    (first / "masks").mkdir()
    for name in (
        ".answers.csv",
        "answers.csv.part",
        "~$answers.csv",
        "answers.csv~",
        "x.csv.tmp",
        "masks/Thumbs.db",
    ):
        (first / name).write_bytes(b"\0")
    for name in (".x.png", "001-a-1.png.part", "001-a-1.png~"):
        (first / "masks" / name).write_bytes(b"\0")
    assert _poll(labelling) == _poll(drawing) == PollResult(answers=[], rejections=[])


def test_a_mask_is_an_answer_to_the_pixel(drawing: FolderAnnotator, first: Path, second: Path) -> None:
    _draw(first / "masks" / "001-a-1.png")
    _draw(first / "masks" / "003-A-1.PNG", 2 - MASK)
    _draw(second / "masks" / "001-mlaut-2.png", MASK[::-1])
    (first / "answers.csv").write_text("sample,label,by\na/1,,Dr. A\n")
    result = _poll(drawing)
    assert result.rejections == []
    assert {answer.sample: answer.by for answer in result.answers} == {
        "a/1": "Dr. A",
        "A-1": "folder",
        "Ümlaut, 2": "folder",
    }
    labels = _labels(result)
    assert np.array_equal(labels["a/1"], MASK)
    assert np.array_equal(labels["A-1"], 2 - MASK)
    assert np.array_equal(labels["Ümlaut, 2"], MASK[::-1])


def test_masks_that_cannot_be_taken_are_refused_and_taken_once_mended(
    drawing: FolderAnnotator, first: Path
) -> None:
    whole = encode_png(mask_to_pil(MASK, classes=3))
    path = first / "masks" / "001-a-1.png"
    for content, said in [
        (whole[: len(whole) // 2], "not a PNG, or incomplete"),
        (encode_png(mask_to_pil(MASK[:3], classes=3)), "is 6 x 3 pixels and the image 6 x 4"),
        (
            encode_png(Image.fromarray(MASK * 127)),
            "has the pixel values 127, 254: allowed are the class numbers 0 to 2",
        ),
    ]:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        result = _poll(drawing)
        assert _labels(result) == {}
        assert _rejections(result) == [("round-001/masks/001-a-1.png", "a/1")]
        assert said in _reason(result)
    path.write_bytes(whole)
    assert list(_labels(_poll(drawing))) == ["a/1"]
    assert not (first.parent / "rejected.csv").exists()


@pytest.mark.parametrize("name", ["004-s5.png", "a-1.png", "001-a-1.jpg", "notes.txt", b"\xff.png"])
def test_a_foreign_file_among_the_masks_is_refused_by_name(
    drawing: FolderAnnotator, first: Path, name: str | bytes
) -> None:
    _draw(first / "masks" / os.fsdecode(name))
    result = _poll(drawing)
    shown = name if isinstance(name, str) else r"\udcff.png"
    assert _rejections(result) == [(f"round-001/masks/{shown}", "")]
    assert "name a mask like its image" in _reason(result)
    assert shown in (first.parent / "rejected.csv").read_text()


@pytest.mark.parametrize("label", ["cannot", "melanoma"])
def test_a_mask_and_another_answer_contradict_each_other(
    drawing: FolderAnnotator, first: Path, label: str
) -> None:
    (first / "answers.csv").write_text(f"sample,label\na/1,{label}\n")
    _draw(first / "masks" / "001-a-1.png")
    _draw(first / "masks" / "002-a-1.png")
    result = _poll(drawing)
    assert list(_labels(result)) == ["a-1"]
    assert _rejections(result) == [("round-001/masks/001-a-1.png", "a/1")]
    assert "keep one of them" in _reason(result)


def test_two_masks_of_one_sample_contradict_each_other(drawing: FolderAnnotator, first: Path) -> None:
    _draw(first / "masks" / "001-a-1.png")
    _draw(first / "masks" / "001-A-1.png")
    assert _labels(_poll(drawing)) == {}
    assert len(_poll(drawing).rejections) == 1


def test_cannot_and_class_names_where_masks_are_wanted(drawing: FolderAnnotator, first: Path) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,cannot\na-1,melanoma\n")
    result = _poll(drawing)
    assert _labels(result) == {"a/1": None}
    assert _rejections(result) == [("round-001/answers.csv, line 3", "a-1")]
    assert "A label is a mask" in _reason(result)


@pytest.mark.parametrize("spoil", ["missing", "damaged"])
def test_masks_without_their_request_belong_to_nobody(drawing: FolderAnnotator, first: Path, spoil: str) -> None:
    _draw(first / "masks" / "001-a-1.png")
    (first / "request.csv").unlink() if spoil == "missing" else (first / "request.csv").write_bytes(b"\0")
    result = _poll(drawing)
    assert _labels(result) == {}
    assert _rejections(result) == [("round-001/masks", "")]
    assert "request.csv" in _reason(result)


def test_odd_things_in_odd_places(drawing: FolderAnnotator, first: Path, second: Path, tmp_path: Path) -> None:
    (first / "answers.csv").mkdir()
    (first / "masks" / "001-a-1.png").mkdir(parents=True)
    (first / "masks" / "done").mkdir()
    (first / "masks" / "002-a-1.png").symlink_to("002-a-1.png")
    os.mkfifo(first / "masks" / "003-A-1.png")
    (second / "masks").write_text("a file")
    (first.parent / "round-003").write_text("a file")
    (first.parent / "round-004").symlink_to(first.parent / "round-004")
    (first.parent / "round-twelve").mkdir()
    result = _poll(drawing)
    assert result.answers == []
    assert sorted(where for where, _ in _rejections(result)) == [
        "round-001/answers.csv",
        "round-001/masks/001-a-1.png",
        "round-001/masks/002-a-1.png",
        "round-001/masks/003-A-1.png",
        "round-001/masks/done",
        "round-002/masks",
        "round-003",
        "round-004",
    ]


def test_a_link_within_the_folder_is_followed(labelling: FolderAnnotator, first: Path) -> None:
    (first / "mine").mkdir()
    (first / "mine" / "labels.csv").write_text("sample,label\na/1,1\n")
    (first / "answers.csv").symlink_to("mine/labels.csv")
    assert _labels(_poll(labelling)) == {"a/1": 1}


def test_a_file_in_the_place_of_the_annotation_folder_is_said(lesions: PreparedSite, tmp_path: Path) -> None:
    (tmp_path / "annotation").write_text("a file")
    with pytest.raises(FealError, match="annotation"):
        FolderAnnotator(lesions, folder=tmp_path).poll(pending=IDS, answered=[])


@pytest.mark.parametrize("place", ["answers.csv", "masks", "masks/001-a-1.png", "request.csv"])
def test_no_link_is_followed_out_of_the_folder(
    drawing: FolderAnnotator, first: Path, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "answers.csv").write_text("sample,label\na/1,cannot\n")
    (outside / "request.csv").write_bytes((first / "request.csv").read_bytes())
    _draw(outside / "masks" / "001-a-1.png")
    if place == "request.csv":
        _draw(first / "masks" / "001-a-1.png")
        (first / "request.csv").unlink()
    (first / place).parent.mkdir(exist_ok=True)
    (first / place).symlink_to(outside / place)
    result = _poll(drawing)
    assert result.answers == []
    assert len(result.rejections) == 1


def test_a_whole_round_behind_a_link_is_not_read(labelling: FolderAnnotator, first: Path, tmp_path: Path) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,1\n")
    first.rename(tmp_path / "moved")
    first.symlink_to(tmp_path / "moved")
    result = _poll(labelling)
    assert result.answers == []
    assert _rejections(result) == [("round-001", "")]


def test_the_whole_annotation_folder_may_lie_on_a_share(
    labelling: FolderAnnotator, first: Path, tmp_path: Path
) -> None:
    (first / "answers.csv").write_text("sample,label\na/1,1\n")
    first.parent.rename(tmp_path / "share")
    first.parent.symlink_to(tmp_path / "share")
    assert _labels(_poll(labelling)) == {"a/1": 1}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=150), good=st.booleans())
def test_no_answers_file_crashes_it(lesions: PreparedSite, content: bytes, good: bool) -> None:
    with TemporaryDirectory() as folder:
        annotator = FolderAnnotator(lesions, folder=Path(folder))
        annotator.ask(queries(IDS[:1], round=2), predict_masks=None)
        place = Path(folder) / "annotation" / "round-002"
        (place / "answers.csv").write_bytes((b"sample,label\na/1,1\n" if good else b"") + content)
        result = annotator.poll(pending=IDS, answered=[])
        assert (place.parent / "rejected.csv").exists() == bool(result.rejections)
