"""What processes of tests do; they have to import it."""

import os
import signal
import time
from pathlib import Path


def noted(task: tuple[Path, str]) -> str | None:
    """Leave this process's id and the time in a file, and do what the task says."""
    folder, what = task
    begin = time.monotonic()
    if what.startswith("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if what.startswith("interrupt"):
        os.kill(os.getpid(), signal.SIGINT)
    if what.startswith("sleep"):
        (folder / f"{what}.begun").write_text(str(os.getpid()))
        time.sleep(60)
    if what.startswith("raise"):
        raise ValueError("it is wrong")
    time.sleep(0.05)
    (folder / what).write_text(f"{os.getpid()} {begin} {time.monotonic()}")
    return "it is broken" if what.startswith("break") else None
