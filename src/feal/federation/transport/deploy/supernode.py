"""Run Flower's SuperNode as a child process of `feal deploy site`.

`python -m feal.federation.transport.deploy.supernode PARENT [options of flower-supernode]`
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from types import SimpleNamespace

# Flower reads these at import: no telemetry, no check for updates.
ENVIRONMENT_VARIABLES = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
HEARTBEAT_SECONDS = 10
"""The shortest interval that Flower accepts: a killed SuperNode is missed after twice that, not after a minute."""
PULL_SECONDS = 0.05
"""Between two requests for messages, instead of Flower's 3 s: the coordinator holds each request open."""


def run_supernode() -> None:
    """Run the SuperNode until this process is terminated or its parent ends."""
    os.environ.update(ENVIRONMENT_VARIABLES)
    from flwr.supercore import heartbeat
    from flwr.supernode import fleet_http_connection, start_client_internal
    from flwr.supernode.cli.flower_supernode import flower_supernode

    from feal.processes import exit_with_parent

    parent = int(sys.argv.pop(1))
    exit_with_parent(parent, lambda: os.kill(os.getpid(), signal.SIGINT))
    for module in (heartbeat, fleet_http_connection):
        module.HEARTBEAT_DEFAULT_INTERVAL = HEARTBEAT_SECONDS  # type: ignore[attr-defined]
    start_client_internal.time = SimpleNamespace(  # type: ignore[assignment,attr-defined]
        sleep=lambda seconds: time.sleep(min(seconds, PULL_SECONDS))
    )
    try:
        flower_supernode()
    except Exception:
        traceback.print_exc()
    finally:
        # The thread of its server would keep the process alive forever, without a connection to the coordinator.
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    run_supernode()
