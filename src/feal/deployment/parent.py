"""A process that ends when the one that started it does, however that ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

LOOK_SECONDS = 0.5


def watch_parent(parent: int, leave: Callable[[], object]) -> None:
    """Call `leave` once process `parent` is no longer the one this process belongs to."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        leave()

    threading.Thread(target=watch, name="parent", daemon=True).start()
