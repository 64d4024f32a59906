import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from feal.analysis.outputs import read_discrimination
from tests.command import Command

PAPER = ["fed-camelyon", "fed-fundus", "fed-isic", "fed-polyp", "fed-prostate", "octa-500"]
UNETS = ("basic-unet", "unet", "unet-lite0")
SYNTHETIC = ["synthetic-lesions", "synthetic-polyps"]

TINY = [
    "dataset.sites=2",
    "dataset.train=40",
    "dataset.test=16",
    "dataset.classes=5",
    "rounds=2",
    "communication_rounds=2",
    "budget=5",
]


def test_run_show_resume(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ran = command("run", "demo", *TINY, "--out", folder)
    assert ran.code == 0, ran.err
    assert "Round 1 of 2" in ran.out
    assert "zero evidence" in ran.out
    assert f"feal resume {folder} rounds=4" in ran.out
    assert "\x1b" not in ran.out

    shown = command("show", folder)
    assert shown.code == 0
    assert "finished after 2 rounds" in shown.out
    assert "ROC-AUC" in shown.out

    extended = command("resume", folder, "rounds=3")
    assert extended.code == 0
    assert "Round 3 of 3" in extended.out
    assert len(json.loads((folder / "summary.json").read_text())["rounds"]) == 3


def test_areas_under_the_curve_are_shown_where_they_can_be_had(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert command("run", "demo", *TINY, "--out", folder).code == 0
    *_, last = read_discrimination(folder)
    lines = [line.split() for line in command("show", folder).out.splitlines()]
    # labels, balanced accuracy, ROC-AUC
    assert next(line for line in lines if line[:1] == ["alder"])[3] == f"{last.sites['alder']:.3f}"
    assert next(line for line in lines if line[:1] == ["2"])[-2:] == [f"{last.mean:.3f}", f"{last.pooled:.3f}"]

    for file in folder.glob("sites/*/diagnostics/evaluation-*.safetensors"):
        file.write_bytes(b"nothing")
    shown = command("show", folder)
    assert (shown.code, shown.err) == (0, "")
    assert "ROC-AUC" not in shown.out
    assert "balanced accuracy" in shown.out


def test_the_default_folder_is_new_each_time(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert command("run", "demo", *TINY, "rounds=1", "strategy=random").code == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["demo-random-0", "demo-random-0-2"]


@pytest.mark.parametrize(
    ("what", "named"),
    [
        (
            "strategies",
            [
                "badge",
                "clasp-pe",
                "coreset",
                "dropquery",
                "entropy",
                "feal",
                "full",
                "gradnorm",
                "kafal",
                "logo",
                "margin",
                "maxherding",
                "mixed",
                "probcover",
                "random",
                "random-class",
                "random-foreground",
                "rarity-herding",
                "strata",
                "tod",
                "typiclust",
                "uherding",
            ],
        ),
        (
            "presets",
            [
                *PAPER,
                "fed-isic-small",
                "fed-polyp-small",
                "demo",
                "demo-polyps",
                "recommended",
                "recommended-segmentation",
                *SYNTHETIC,
            ],
        ),
        ("datasets", [*PAPER, *SYNTHETIC]),
        ("models", [*UNETS, "densenet-121", "efficientnet-b0", "efficientnet-lite0", "frozen", "tiny-cnn"]),
        ("transports", ["flower", "flower-simulation", "in-process"]),
        ("annotators", ["folder", "oracle"]),
    ],
)
def test_list(command: Command, what: str, named: list[str]) -> None:
    listed = command("list", what)
    assert listed.code == 0
    lines = [line.split()[0] for line in listed.out.splitlines()[1:] if line.strip() and line[1] != " "]
    assert sorted(lines) == sorted(named)


def test_data_show_writes_a_sheet_for_each_site(command: Command, tmp_path: Path) -> None:
    shown = command("data", "show", "synthetic-lesions", "sites=2", "train=40", "test=16", "--out", tmp_path)
    assert shown.code == 0, shown.err
    sheets = sorted(tmp_path.glob("*.png"))
    assert len(sheets) == 2
    for sheet in sheets:
        with Image.open(sheet) as image:
            assert image.width > 300


@pytest.mark.parametrize(
    "words",
    [[], ["run"], ["resume"], ["show"], ["labels"], ["predict"], ["export"], ["list"], ["data"]]
    + [["data", what] for what in ("prepare", "check", "show")],
)
def test_help_has_examples_everywhere(command: Command, words: list[str]) -> None:
    helped = command(*words, "--help")
    assert helped.code == 0
    assert "Usage" in helped.out
    if words != ["data"]:
        assert f"feal {' '.join(words)}".strip() in " ".join(helped.out.split())


def test_version(command: Command) -> None:
    assert command("--version").out.startswith("feal 0.")


def test_unknown_commands_are_usage_errors(command: Command) -> None:
    assert command("rnu").code == 2
    assert command("run").code == 2


def test_the_help_needs_no_heavy_import() -> None:
    code = "import sys, feal.cli.app; print(*({'torch', 'numpy', 'pydantic', 'monai', 'flwr'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
