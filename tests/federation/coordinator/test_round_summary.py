"""Sentences for people: what of the settings and the sites comes to nothing is said when a run begins."""

import os
from pathlib import Path

import pytest

from feal.experiment import resume, start
from feal.federation.coordinator.round_summary import opening_notes
from feal.federation.protocol import JoinReply
from feal.settings import Settings
from tests.runs import Listener, events, tiny

MINE = """
from feal.selection.strategies.random import Random

class Mine(Random):
    pass
"""


def _notes(*, pool: int = 100, untested: tuple[str, ...] = (), **changes: object) -> list[str]:
    settings = Settings.model_validate({"dataset": "d", "model": "tiny-cnn", "budget": 5, **changes})
    sites = {
        name: JoinReply(key="", site=name, pool=pool, test=0 if name in untested else 9)
        for name in ("alder", "birch")
    }
    return opening_notes(settings, sites)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"transforms": {"crop": 20, "crop_rule": "centre", "flips": True, "probability": 0.2}}, []),
        (
            {"transforms": {"crop_rule": "centre"}},
            ["transforms.crop_rule=centre has no effect without transforms.crop."],
        ),
        (
            {"transforms": {"crop": 20, "probability": 0.2}},
            [
                "transforms.probability=0.2 has no effect without any of transforms.rotation, transforms.flips, "
                "transforms.brightness, transforms.contrast."
            ],
        ),
        (
            {"model": "efficientnet-b0"},
            [
                "efficientnet-b0 starts from random weights: running statistics of batch norm evaluate it "
                "near chance for hundreds of batches; training.batch_norm=recompute or weights=imagenet helps."
            ],
        ),
        ({"model": "efficientnet-b0", "training": {"batch_norm": "recompute"}}, []),
        ({"model": "efficientnet-b0", "weights": "imagenet"}, []),
        ({"untested": ("birch",)}, ["Site birch has no test samples, so no metrics."]),
        (
            {"untested": ("alder", "birch")},
            ["Sites alder, birch have no test samples, so no metrics."],
        ),
        (
            {"pool": 4, "max_labelled_fraction": 0.5},
            [
                f"Site {site} can be asked for 2 labels in total, fewer than the budget of 5."
                for site in ("alder", "birch")
            ],
        ),
        (
            {"strategy": "full", "budget": "all"},
            [
                "Strategy full labels every sample at once: there is one round, and budget and "
                "max_labelled_fraction have no effect."
            ],
        ),
    ],
)
def test_what_comes_to_nothing_is_said(changes: dict[str, object], said: list[str]) -> None:
    assert _notes(**changes) == said


def test_notes_of_the_beginning_are_said_once_and_logged(tmp_path: Path) -> None:
    listener = Listener()
    settings = tiny(strategy="full", communication_rounds=1, dataset={"sites": 2, "train": 20, "test": 0})
    run = start(settings, out=tmp_path / "run", callback=listener)
    assert len(listener.notes) == 2
    assert listener.notes[0].startswith("Strategy full labels every sample at once")
    assert "no test samples" in listener.notes[1]
    assert [event["note"] for event in events(run.folder, "note")] == listener.notes
    again = Listener()
    resume(run.folder, callback=again)
    assert again.notes == []


def test_a_strategy_that_was_edited_is_said_once_when_the_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    run = start(tiny(strategy=f"{file}:Mine", rounds=1, communication_rounds=1), out=tmp_path / "run")
    unedited = Listener()
    resume(run.folder, callback=unedited)
    assert unedited.notes == []

    file.write_text(MINE + "# another rule\n")
    os.utime(file)
    edited, again = Listener(), Listener()
    resume(run.folder, callback=edited)
    (note,) = edited.notes
    assert note.startswith(f"{file} was edited since the run was started or last resumed: from round 2 on samples")
    assert [event["note"] for event in events(run.folder, "note")] == [note]
    resume(run.folder, callback=again)
    assert again.notes == []
