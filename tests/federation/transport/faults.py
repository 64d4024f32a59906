"""A site that obeys the request, for actors; and functions that inspect processes."""

import os
import signal
import time
from pathlib import Path


def answer(name: str, request: bytes, *, data: Path, folder: Path) -> bytes:
    """Obey a request such as `b"hang birch"` at that site (or at `all`), and answer by it everywhere else."""
    order, site = request.decode().split()
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "process").write_text(str(os.getpid()))
    if site in (name, "all"):
        _obey(order)
    return f"{name}: ".encode() + request


def _obey(order: str) -> None:
    if order == "fail":
        raise ZeroDivisionError("sample 17")
    if order == "leave":
        raise SystemExit(3)
    if order == "end":
        os._exit(0)
    if order == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "nap":
        time.sleep(2)
    if order == "hang":
        time.sleep(600)


def family(pid: int) -> set[int]:
    """Return all running descendants of a process."""
    parents = {int(path.name): _parent(path) for path in Path("/proc").glob("[0-9]*")}
    found, known = {pid}, set[int]()
    while found != known:
        known = set(found)
        found |= {child for child, parent in parents.items() if parent in known}
    return {child for child in found - {pid} if running(child)}


def running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    return _status(Path(f"/proc/{pid}"))[0] not in ("", "Z")


def _parent(path: Path) -> int:
    return int(_status(path)[1])


def _status(path: Path) -> tuple[str, str]:
    try:
        state, parent, *_ = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", "0"
    return state, parent


def owners(port: int) -> set[int]:
    """Return the processes with a connection from that local port."""
    end = f"0100007F:{port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{fields[9]}]" for fields in lines if fields[1] == end}
    return {
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if sockets & {_target(link) for link in (path / "fd").glob("*")}
    }


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def strangers(pids: set[int]) -> set[str]:
    """Return the addresses other than loopback at which these processes listen."""
    listening = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[f"socket:[{fields[9]}]"] = fields[1]
    own = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    found = {
        listening.get(str(link.readlink()), "")
        for pid in pids
        for link in Path(f"/proc/{pid}/fd").glob("*")
        if link.is_symlink()
    }
    return {address for address in found if address and address.split(":")[0] not in own}
