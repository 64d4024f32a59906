"""`feal deploy status`, of a coordinator that is only imagined."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from feal.federation.transport import flower_link
from feal.federation.transport.flower_deployment import StatusFile, write_site_status
from tests.command import Command, Ended

NAMES = ["alder", "a-hospital-with-a-name-of-many-letters-and-then-a-few-more"]
Status = Callable[..., Ended]


def _node(name: str, status: str) -> Any:
    now = datetime.now(UTC)
    return SimpleNamespace(
        name=name,
        status=status,
        last_activated_at=now.isoformat(),
        last_deactivated_at=now.isoformat(),
        online_until=now.timestamp() + 15,
        heartbeat_interval=10.0,
    )


@pytest.fixture
def status(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Status:
    """What the command shows."""

    def shown(*, insecure: bool, nodes: list[Any]) -> Ended:
        directory = SimpleNamespace(
            address="127.0.0.1:9092", insecure=insecure, list_nodes=lambda: nodes, close=lambda: None
        )
        monkeypatch.setattr(flower_link, "SuperLinkClient", lambda place: directory)
        (tmp_path / "coordinator.yaml").write_text(f"sites: {{{NAMES[0]}: a.pub, {NAMES[1]}: b.pub}}\n")
        seen = StatusFile(run=str(tmp_path / "gone"), sites={})
        seen = seen.with_reply(NAMES[0], {"labelled": 5, "pending": 2}, message="close_round", round=1, step=0)
        seen = seen.with_reply(NAMES[1], {"problem": "It\x1b[2J failed."}, message="train", round=1, step=0)
        write_site_status(tmp_path / "state" / "site-status.json", seen)
        return command("deploy", "status", tmp_path)

    return shown


def test_names_stay_whole_where_output_is_no_terminal(status: Status) -> None:
    shown = status(insecure=False, nodes=[_node(NAMES[0], "online"), _node(NAMES[1], "offline")])
    assert shown.code == 0, shown.err
    other, alder = (line.split() for line in shown.out.splitlines()[-3:-1])
    assert alder[:2] == ["alder", "yes"]
    assert alder[3:] == ["s", "ago", "-", "close_round", "1.0", "5", "2"]
    assert other[:2] == [NAMES[1], "no"]
    assert shown.out.splitlines()[-1] == f"{NAMES[1]}: It [2J failed."


def test_a_narrow_terminal_gets_lines(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    shown = status(insecure=False, nodes=[_node(NAMES[0], "online"), _node(NAMES[1], "offline")])
    assert (
        "alder: connected yes, last seen 5 s ago, version -, last message close_round 1.0, labels 5" in shown.out
    )
    assert f"{NAMES[1]}: connected no, last seen 0 s ago" in shown.out


def test_plain_text_shows_the_sites_of_the_settings(status: Status) -> None:
    shown = status(insecure=True, nodes=[_node("", "online"), _node("", "offline")])
    assert "is running at 127.0.0.1:9092 in plain text." in shown.out
    assert "Sites connected: 1; without keys their names are unknown" in shown.out
    (line,) = (line.split() for line in shown.out.splitlines() if line.strip().startswith("alder"))
    assert line[1] == "?"
    assert line[-4:] == ["close_round", "1.0", "5", "2"]


def test_a_coordinator_that_does_not_run_is_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "coordinator.yaml").write_text("{}")
    ended = command("deploy", "status", tmp_path)
    assert ended.code == 2
    assert ended.err == (
        f"Error: No coordinator is running in {tmp_path}: start it with `feal deploy coordinator {tmp_path}`.\n"
    )
