import os
from pathlib import Path

import pytest

from feal.processes import cores, free_memory


def test_a_process_has_the_cores_it_may_use() -> None:
    before = os.sched_getaffinity(0)
    assert cores() == len(before)
    try:
        os.sched_setaffinity(0, [min(before)])
        assert cores() == 1
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
