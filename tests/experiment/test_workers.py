import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import active_children
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from feal.experiment import workers
from feal.experiment.workers import work_off
from tests.tasks import noted

Task = tuple[Path, str]


def work(folder: Path, *names: str, processes: int = 2) -> dict[str, str | None]:
    tasks = [(folder, name) for name in names]
    return {task[1]: problem for task, problem in work_off(tasks, noted, processes=processes, tick=0.05)}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_tasks_are_done_by_so_many_processes_and_no_more(tmp_path: Path) -> None:
    names = [f"task {number}" for number in range(8)]
    assert work(tmp_path, *names) == dict.fromkeys(names)
    done = [(tmp_path / name).read_text().split() for name in names]
    spans = [(float(begin), float(end)) for _, begin, end in done]
    assert len({pid for pid, *_ in done}) == 2
    assert max(sum(a <= begin < b for a, b in spans) for begin, _ in spans) <= 2
    assert not any(alive(int(pid)) for pid, *_ in done)


def test_a_process_that_dies_takes_its_own_task_with_it_alone(tmp_path: Path) -> None:
    ended = work(tmp_path, "one", "die", "break", "interrupt", "two", processes=1)
    assert "perhaps for want of memory" in str(ended.pop("die"))
    # Ctrl-C is the parent's business.
    assert ended == {"one": None, "break": "it is broken", "interrupt": None, "two": None}


def test_a_process_is_replaced_after_some_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "TASKS_OF_A_PROCESS", 2)
    work(tmp_path, "a", "b", "c", processes=1)
    first, second, third = ((tmp_path / name).read_text().split()[0] for name in "abc")
    assert first == second != third


def test_whoever_stops_leaves_no_process_behind(tmp_path: Path) -> None:
    heard: list[Sequence[Task]] = []
    tasks = [(tmp_path, "quick"), (tmp_path, "sleep"), (tmp_path, "never")]
    with closing(work_off(tasks, noted, processes=2, moved=heard.append, tick=0.05)) as ends:
        next(ends)
        while not (tmp_path / "sleep.begun").exists():
            time.sleep(0.02)
        begin = time.monotonic()
    assert time.monotonic() - begin < 5
    assert not alive(int((tmp_path / "sleep.begun").read_text()))
    assert heard[0] == tasks[:2]


def test_ctrl_c_while_a_process_starts_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = SpawnProcess.start

    def interrupted(process: SpawnProcess) -> None:
        start(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(tmp_path, "sleep")
    assert active_children() == []


def test_ctrl_c_twice_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminate = SpawnProcess.terminate

    def interrupted(process: SpawnProcess) -> None:
        terminate(process)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(SpawnProcess, "terminate", interrupted)

    def moved(_: Sequence[Task]) -> None:
        if (tmp_path / "sleep.begun").exists():
            raise KeyboardInterrupt

    tasks = [(tmp_path, "sleep"), (tmp_path, "sleep too")]
    with pytest.raises(KeyboardInterrupt):
        list(work_off(tasks, noted, processes=2, moved=moved, tick=0.05))
    assert active_children() == []


def test_nothing_to_do_starts_nothing(tmp_path: Path) -> None:
    assert work(tmp_path) == {}
