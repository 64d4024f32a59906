import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import active_children
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from feal import processes as pool
from feal.processes import WorkerDiedError, count_cores, free_memory, run_tasks
from tests.tasks import noted

Task = tuple[Path, str]


def work(folder: Path, *names: str, processes: int = 2) -> dict[str, str | Exception | None]:
    tasks = [(folder, name) for name in names]
    return {task[1]: problem for task, problem in run_tasks(tasks, noted, processes=processes, tick=0.05)}


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
    ended = work(tmp_path, "one", "die", "break", "raise", "interrupt", "two", processes=1)
    died, raised = ended.pop("die"), ended.pop("raise")
    assert isinstance(died, WorkerDiedError)
    assert "possibly because memory ran out" in str(died)
    assert (type(raised), str(raised)) == (ValueError, "it is wrong")
    # Ctrl-C is the parent's business.
    assert ended == {"one": None, "break": "it is broken", "interrupt": None, "two": None}


def test_a_process_is_replaced_after_some_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "TASKS_PER_WORKER", 2)
    work(tmp_path, "a", "b", "c", processes=1)
    first, second, third = ((tmp_path / name).read_text().split()[0] for name in "abc")
    assert first == second != third


def test_whoever_stops_leaves_no_process_behind(tmp_path: Path) -> None:
    heard: list[Sequence[Task]] = []
    tasks = [(tmp_path, "quick"), (tmp_path, "sleep"), (tmp_path, "never")]
    with closing(run_tasks(tasks, noted, processes=2, on_tick=heard.append, tick=0.05)) as ends:
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
        list(run_tasks(tasks, noted, processes=2, on_tick=moved, tick=0.05))
    assert active_children() == []


def test_nothing_to_do_starts_nothing(tmp_path: Path) -> None:
    assert work(tmp_path) == {}


def test_a_process_has_the_cores_it_may_use() -> None:
    before = os.sched_getaffinity(0)
    assert count_cores() == len(before)
    try:
        os.sched_setaffinity(0, [min(before)])
        assert count_cores() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"meminfo": "MemTotal: 9 kB\nMemAvailable:    4 kB\n"}, 4096),
        ({"meminfo": "MemAvailable: 4 kB\n", "memory.max": "max\n", "memory.current": "1\n"}, 4096),
        ({"meminfo": "MemAvailable: 4 kB\n", "memory.max": "3000\n", "memory.current": "1000\n"}, 2000),
        ({"meminfo": "MemAvailable: 4 kB\n", "memory.max": "3000\n", "memory.current": "4000\n"}, 0),
        ({"meminfo": "MemTotal: 9 kB\n"}, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        ({}, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    ],
)
def test_free_memory_is_what_machine_and_container_leave(
    files: dict[str, str], free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> str:
        if path.name not in files:
            raise FileNotFoundError(path)
        return files[path.name]

    monkeypatch.setattr(Path, "read_text", read)
    assert free_memory() == free


FAULTS = """
import resource, sys, torch
from feal.processes import retain_memory
if sys.argv[1] == "retain":
    retain_memory()
def allocate():
    for _ in range(20):
        torch.ones(2**24)
allocate()  # a small block beyond the first tensor can make it too short for the next, until neighbours merge
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
allocate()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries keep memory in other ways")
def test_the_memory_of_a_tensor_serves_the_next() -> None:
    faults = {
        way: int(subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, check=True).stdout)
        for way in ("retain", "return")
    }
    assert faults["retain"] < faults["return"] / 3
