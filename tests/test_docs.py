"""Pages that are followed literally work as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command import Command
from tests.federation.transport.consortium import Process, free_port, until
from tests.paths import PROJECT

SHORT = ["rounds=1", "communication_rounds=2", "training.local_epochs=1"]


@pytest.mark.slow
def test_the_pages_about_predicting_and_figures(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("run", "demo", *SHORT).code == 0
    page = (PROJECT / "docs" / "predict.md").read_text()
    for language, block in re.findall(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL):
        if language == "python":
            exec(block, {})
            continue
        for line in block.splitlines():
            ended = command(*shlex.split(line)[1:])
            assert ended.code == 0, f"{line}: {ended.err}"
    tables = [path.read_bytes() for path in sorted(tmp_path.glob("predictions/*/predictions.csv"))]
    assert len(tables) == 2
    assert tables[0] == tables[1]
    assert tables[0].count(b"\n") == 13
    (figures,) = re.findall(r"```python\n(.*?)```", (PROJECT / "docs" / "metrics.md").read_text(), flags=re.DOTALL)
    exec(figures, {})


@pytest.mark.slow
def test_the_page_about_strategies(tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "add-a-strategy.md").read_text()
    names = iter(re.findall(r"[Ss]ave (?:it )?as\s+`(\w+\.py)`", page))
    commands = []
    for language, block in re.findall(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL):
        if language == "python":
            (tmp_path / next(names)).write_text(block)
        else:
            commands.append(block)
    assert len((tmp_path / "gap.py").read_text().splitlines()) < 30
    whole = "python -m pytest -q test_gap.py -k 'hidden and classification' -o 'markers=slow: whole runs'"
    done = _followed([*commands, whole], tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert list((tmp_path / "runs" / "demo-Gap-0").glob("sites/*/selections/round-002.csv"))
    assert len(re.findall(r"\d+ passed", done.stdout)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("page", ["add-a-metric.md", "add-a-model.md"])
def test_a_page_about_a_class_of_a_user(
    page: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (PROJECT / "docs" / page).read_text()
    names = iter(re.findall(r"[Ss]ave (?:it )?as\s+`(\w+\.py)`", text))
    shown = ""
    for language, block in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL):
        name = next(names, None) if language == "python" else None
        if name is not None:
            (tmp_path / name).write_text(block)
        elif language == "python":
            exec(block, {})
        else:
            for line in block.splitlines():
                ended = command(*shlex.split(line)[1:])
                assert ended.code == 0, f"{line}: {ended.err}"
                shown += ended.out
    if page == "add-a-metric.md":
        assert "kappa" in shown
        assert "brier" in shown
    else:
        assert "(2, 5), (2, 32), (2, 288), (2, 32)" in capsys.readouterr().out
        assert (tmp_path / "exported" / "model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "last"),
    [("annotate.md", "nevus"), ("transports.md", "still the same"), ("compare.md", "| feal |")],
    ids=["annotate", "transports", "compare"],
)
def test_a_page_of_commands(page: str, last: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```\n(.*?)```", (PROJECT / "docs" / page).read_text(), flags=re.DOTALL)
    commands = [block for block in blocks if block.startswith(("feal", "cd", "cat", "(", "for", "ls"))]
    assert len(commands) == len(blocks)
    done = _followed(commands, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    assert last in done.stdout


@pytest.mark.slow
def test_the_page_about_data_sets(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(96):
        site, kind = ("alder", "birch")[number % 2], ("benign", "malignant")[number // 2 % 2]
        pixels = Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((80, 70))
        for name in (f"images/{site}/{kind}/{number}.png", f"flat/{site}-p{number // 6}-{kind}-{number}.png"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            pixels.save(tmp_path / name)
    page = (PROJECT / "docs" / "add-a-dataset.md").read_text()
    blocks = re.findall(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "my_set.py").write_text(next(block for language, block in blocks if language == "python"))
    commands = [block for language, block in blocks if not language]
    assert commands[0].count("\n") == 5
    done = _followed(commands, tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert sorted(path.name for path in (tmp_path / "sheets").iterdir()) == ["alder.png", "birch.png"]
    assert (tmp_path / "runs" / "my-set" / "summary.json").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_about_deployment(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(90):
        site, kind = ("alder", "birch", "cedar")[number % 3], ("benign", "malignant")[number // 3 % 2]
        path = tmp_path / "pictures" / site / kind / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((40, 40)).save(path)
    page = (PROJECT / "docs" / "deployment.md").read_text()
    (trial,) = re.findall(r"## Try it on one machine\n(.*?)\n## ", page, flags=re.DOTALL)
    blocks = re.findall(r"```\n(.*?)```", trial, flags=re.DOTALL)
    commands = "".join(blocks).replace(":9092", f":{free_port()}")
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = Process(["bash", "-e", "-c", f"cd {tmp_path}\n{commands}"], tmp_path / "shell.log", environment)
    try:
        until(lambda: not shell.alive(), "the end of the commands", seconds=900)
        assert shell.ended() == 0, shell.said()[-2000:]
        assert shell.members() == set()
    finally:
        shell.kill()
    said = shell.said()
    assert "The run is finished: " in said
    assert "runs/trial: feal on lesions, seed 0, finished after 1 rounds." in said
    assert "Traceback" not in said
    assert "The coordinator listens at 127.0.0.1" in (tmp_path / "coordinator.log").read_text()


def _followed(commands: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What comes of the commands in a folder."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
