"""Runs that are killed by SIGKILL and resumed, each in a process forked from one that has imported everything.

`python -m tests.e2e.killing kinds FOLDER` kills before and after one durable write of each kind of a small run,
`every` around each of them (`every-polyps`: of a segmentation run, `people`: of one that waits for labels,
`extension`: of the extension of a finished run); `random` kills a longer one at twenty random moments. Each prints
a JSON report.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feal
from feal import fileio as files
from feal.data import locate
from feal.experiment import resume, start
from feal.rundir import journal
from feal.rundir.site_store import Store
from feal.settings import Settings
from tests.frozen import frozen, write_weights
from tests.people import answer_all, data_of
from tests.runs import differences, fingerprint, tiny, tiny_polyps

Work = Callable[[Path], object]
WORKERS = 2


class _Killer:
    """Counts durable writes and kills this process at one of them."""

    def __init__(self, at: int, when: str) -> None:
        self.kinds: list[str] = []
        """What was written, in order; numbers and digests in names left out."""
        self._at = at
        self._when = when

    def wrap(self, write: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*args: object) -> None:
            self.kinds.append(_kind(args[-1]))
            if (len(self.kinds), self._when) == (self._at, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            write(*args)
            if (len(self.kinds), self._when) == (self._at, "after"):
                os.kill(os.getpid(), signal.SIGKILL)

        return wrapped

    def install(self) -> None:
        # Before a file is synced, the end of what was written to it is in this process only.
        files.sync_file = journal.sync_file = self.wrap(files.sync_file)
        files.rename_durably = self.wrap(files.rename_durably)
        Store.commit = self.wrap(Store.commit)  # type: ignore[method-assign]


def _kind(written: object) -> str:
    """Name a durable write: a commit of a site's database, or a file by its folder and name."""
    if isinstance(written, Store):
        return "commit"
    path = Path(getattr(written, "name", written) if not isinstance(written, Path) else written)
    return re.sub(r"[0-9a-f]{6,}|[0-9]+", "#", f"{path.parent.name}/{path.name}")


def _carry_on(settings: Settings, folder: Path) -> str:
    begun = (folder / "config.yaml").exists()
    return (resume(folder) if begun else start(settings, out=folder)).status


def _with_people(settings: Settings, folder: Path) -> None:
    """Go on to the end, with annotators who answer whatever is asked for."""
    status = _carry_on(settings, folder)
    while status == "waiting":
        answer_all(folder, data_of(settings))
        status = resume(folder).status


def _fork(work: Callable[[], object]) -> int:
    """Begin the work in a child."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    return child


def _ended(child: int) -> int:
    """A child's exit code, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _forked(work: Callable[[], object], *, kill_after: float | None = None) -> int:
    """Do the work in a child, and kill it after a time."""
    child = _fork(work)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return _ended(child)


def every_write(folder: Path, work: Work, again: Work, *, once_per_kind: bool = False) -> dict[str, object]:
    """Kill the work before and after each durable write in turn, go on, and compare with an undisturbed run.

    With `once_per_kind`, only at the last write of each kind.
    """
    counted = folder / "writes"

    def undisturbed() -> None:
        killer = _Killer(0, "never")
        killer.install()
        work(folder / "whole")
        counted.write_text(json.dumps(killer.kinds))

    # The first run on a data set leaves notes and outputs of a trunk for all: it makes more writes than others.
    assert _forked(lambda: work(folder / "first")) == 0
    assert _forked(undisturbed) == 0
    expected = fingerprint(folder / "whole")
    kinds: list[str] = json.loads(counted.read_text())
    last = {kind: number for number, kind in enumerate(kinds, start=1)}
    writes = sorted(last.values()) if once_per_kind else list(range(1, len(kinds) + 1))

    def kills(first: int) -> None:
        wrong = []
        for at in writes[first::WORKERS]:
            for when in ("before", "after"):
                problem = _killed_once(folder / f"{when}-{at}", work, again, expected, _Killer(at, when))
                wrong += [{"kill": f"{when} write {at}", **problem}] if problem else []
        (folder / f"wrong-{first}").write_text(json.dumps(wrong))

    workers = [_fork(lambda first=first: kills(first)) for first in range(WORKERS)]
    assert [_ended(worker) for worker in workers] == [0] * WORKERS
    wrong = [entry for path in folder.glob("wrong-*") for entry in json.loads(path.read_text())]
    return {"writes": len(kinds), "kinds": sorted(last), "kills": 2 * len(writes), "wrong": wrong}


def _killed_once(
    run: Path, work: Work, again: Work, expected: dict[str, Any], killer: _Killer
) -> dict[str, object]:
    """What is wrong after one kill and going on; nothing if all is well."""

    def killed() -> None:
        killer.install()
        work(run)

    ended = _forked(killed)
    resumed = _forked(lambda: again(run))
    found = differences(expected, fingerprint(run)) if resumed == 0 else ["not resumed"]
    shutil.rmtree(run, ignore_errors=True)
    return {"ended": ended, "differs": found} if ended != -signal.SIGKILL or found else {}


def extension(folder: Path, settings: Settings) -> dict[str, object]:
    """Kill the extension of a finished run by one more round."""
    finished = folder / "finished"
    assert _forked(lambda: start(settings, out=finished)) == 0

    def extend(run: Path) -> None:
        if not run.exists():
            shutil.copytree(finished, run)
        feal.resume(run, rounds=settings.rounds + 1)

    return every_write(folder, extend, extend)


def random_moments(folder: Path, settings: Settings, *, kills: int = 20) -> dict[str, object]:
    """Kill one run again and again at random moments, then let it end, and compare."""
    began = time.monotonic()
    assert _forked(lambda: _carry_on(settings, folder / "whole")) == 0
    whole = time.monotonic() - began
    expected = fingerprint(folder / "whole")
    draw = random.Random(0)
    run = folder / "killed"
    killed = 0
    for _ in range(kills):
        ended = _forked(lambda: _carry_on(settings, run), kill_after=draw.uniform(0, 2 * whole / kills))
        killed += ended == -signal.SIGKILL
    assert _forked(lambda: _carry_on(settings, run)) == 0
    return {"kills": killed, "seconds": round(whole, 1), "wrong": differences(expected, fingerprint(run))}


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    small = tiny_polyps(rounds=1, communication_rounds=1) if kind == "every-polyps" else tiny()
    if kind == "every-frozen":
        small = frozen(write_weights(folder / "weights.safetensors"), "tail", rounds=1, communication_rounds=1)
    if kind.startswith("every"):
        locate(small.dataset)
        report = every_write(folder, lambda run: start(small, out=run), lambda run: _carry_on(small, run))
    elif kind == "kinds":
        few = {"sites": 2, "train": 12, "test": 4, "classes": 5}
        asking = tiny(annotator="folder", rounds=1, communication_rounds=2, dataset=few)
        data_of(asking)
        work = lambda run: _with_people(asking, run)  # noqa: E731
        report = every_write(folder, work, work, once_per_kind=True)
    elif kind == "people":
        asking = tiny(annotator="folder", rounds=1, communication_rounds=1)
        data_of(asking)
        report = every_write(folder, lambda run: _with_people(asking, run), lambda run: _with_people(asking, run))
    elif kind == "extension":
        report = extension(folder, tiny(rounds=1, communication_rounds=1))
    else:
        longer = tiny(
            rounds=3, communication_rounds=12, dataset={"sites": 3, "train": 60, "test": 20, "classes": 5}
        )
        report = random_moments(folder, longer)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
