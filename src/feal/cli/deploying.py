"""What `feal deploy` does and prints."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from feal.cli.tables import command, say
from feal.deployment.kit import write_kit
from feal.deployment.places import coordinator_place, site_place
from feal.errors import FealError


def write_consortium(folder: Path, *, address: str, sites: list[str]) -> None:
    """Write what a consortium needs, and say where to begin."""
    write_kit(folder, address=address, sites=sites)
    say(Console(), f"{folder / 'CHECKLIST.md'} says what to do next, on which machine.")


def start_coordinator(folder: Path, *, host: str | None, port: int | None, insecure: bool) -> None:
    """Serve until interrupted."""
    check_installed()
    from feal.deployment.superlink import serve

    place = coordinator_place(folder, {"host": host, "port": port})
    console = Console()

    def ready(address: str) -> None:
        how = "in plain text" if insecure else "with TLS"
        say(console, f"The coordinator listens at {address} {how}, for {_listed(list(place.settings.sites))}.")
        words = ("run", "PRESET", "engine=flower", f"deployment.coordinator={place.folder}")
        say(console, f"Start a run in another terminal: {command(*words)}")

    serve(place, insecure=insecure, ready=ready, say=lambda text: say(console, text))


def start_site(folder: Path, *, data: Path | None, state: Path | None, insecure: bool) -> None:
    """Serve until interrupted."""
    check_installed()
    from feal.federation.deployed.hospital import serve

    changes = {"data": data and str(data.absolute()), "state": state and str(state.absolute())}
    place = site_place(folder, changes)
    console = Console()
    say(console, f"Site {place.settings.name} keeps its labels, models and logs in {place.state}.")
    serve(place, insecure=insecure, say=lambda text: say(console, f"{time.strftime('%H:%M:%S')} {text}"))


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names)) if names else "any site"


def check_installed() -> None:
    """Say in a sentence what to install."""
    try:
        import flwr

        del flwr
    except ImportError as error:
        raise FealError("A deployment needs Flower: install it with `pip install 'feal[flower]'`.") from error
