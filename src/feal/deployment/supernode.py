"""Flower's SuperNode in a process of its own, started by `feal deploy site`.

`python -m feal.deployment.supernode PARENT [options of flower-supernode]`
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from types import SimpleNamespace

# Flower reads these as it is imported: nothing is told to its makers, nor asked of them.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
BEAT_SECONDS = 10
"""The shortest that Flower takes: one that is killed is missed within twice that, not after a minute."""
PAUSE_SECONDS = 0.05
"""Not Flower's three between two questions: the coordinator holds each until it has something to say."""


def main() -> None:
    """Run the SuperNode until this process is asked to end or its parent is gone."""
    os.environ.update(QUIET)
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from feal.deployment.parent import watch_parent

    parent = int(sys.argv.pop(1))
    watch_parent(parent, lambda: os.kill(os.getpid(), signal.SIGINT))
    for module in (heartbeat, fleet_http_connection):
        module.HEARTBEAT_DEFAULT_INTERVAL = BEAT_SECONDS  # type: ignore[attr-defined]
    start_client_internal.time = SimpleNamespace(  # type: ignore[assignment,attr-defined]
        sleep=lambda seconds: time.sleep(min(seconds, PAUSE_SECONDS))
    )
    try:
        flower_supernode()
    except Exception:
        traceback.print_exc()
    finally:
        # Its own server's thread would keep the process alive for ever, with nobody who dials the coordinator.
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
