"""The same run in Flower's simulation, sites that fail, and processes that end."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import feal
from feal.data import locate
from feal.errors import FealError
from feal.experiment import start
from feal.federation.transport import TRANSPORTS, DeliveryFailure, FlowerSimulation
from feal.settings import Component, Settings
from tests.federation.transport import faults
from tests.frozen import frozen, write_weights
from tests.paths import PROJECT
from tests.runs import differences, fingerprint, tiny, tiny_polyps

NAME = "flower-simulation"
SITES = ["alder", "birch"]
RAYS_OWN = ("PYTHONBREAKPOINT", "RAY_ENABLE_UV_RUN_RUNTIME_ENV")
"""Variables that Ray sets itself."""
# Ray leaves the files and process handles that it opened to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


class Faulty(FlowerSimulation):
    """A simulation whose sites obey the request."""

    handler = staticmethod(faults.answer)


@pytest.fixture(scope="module", autouse=True)
def _collect_what_ray_leaves() -> Iterator[None]:
    yield
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()


def make_simulation(folder: Path, **params: object) -> Faulty:
    """Make a simulation of two sites that obey requests; their data are those of `tiny`."""
    data = locate(tiny().dataset, data=None)
    return Faulty(Faulty.Params(**params), data=data, folder=folder, sites=None, threads=1)


def _until(condition: Callable[[], bool], *, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    """A simulation that has delivered a message."""
    faulty = make_simulation(tmp_path_factory.mktemp("run") / "sites", workers=2)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    environment = dict(os.environ)
    relatives = faults.family(os.getpid())
    try:
        assert _replies(faulty, "echo all") == _echoes("echo all")
        assert {number: signal.getsignal(number) for number in before} == before
        after = {name: value for name, value in os.environ.items() if name not in RAYS_OWN}
        assert after == {name: value for name, value in environment.items() if name not in RAYS_OWN}
        yield faulty
    finally:
        faulty.close()
    if sys.platform == "linux":
        assert _until(lambda: not faults.family(os.getpid()) - relatives, seconds=5)


def _replies(
    simulation: FlowerSimulation, request: str, timeout: float | None = None
) -> dict[str, bytes | DeliveryFailure]:
    return dict(simulation.deliver(request.encode(), simulation.sites(), timeout=timeout))


def _echoes(request: str) -> dict[str, bytes]:
    return {site: f"{site}: {request}".encode() for site in SITES}


@pytest.mark.slow
def test_a_missing_cluster_is_an_error(tmp_path: Path) -> None:
    settings = tiny(transport={"name": NAME, "address": "127.0.0.1:9"})
    with pytest.raises(FealError, match="No Ray cluster is available at 127.0.0.1:9"):
        start(settings, out=tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("make", [pytest.param(tiny, marks=pytest.mark.nightly), tiny_polyps])
def test_the_same_bits_as_in_process(
    make: Callable[..., Settings], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = start(make(), out=tmp_path / "one").folder
    other = start(make(transport=NAME), out=tmp_path / "other").folder
    assert differences(fingerprint(one), fingerprint(other)) == ["config.yaml"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_is_continued_on_another_transport(tmp_path: Path) -> None:
    whole = start(tiny(rounds=3), out=tmp_path / "whole").folder
    begun = start(tiny(rounds=1), out=tmp_path / "begun").folder
    feal.resume(begun, rounds=2, transport=NAME)
    feal.resume(begun, rounds=3, transport="in-process")
    assert differences(fingerprint(whole), fingerprint(begun)) == []


@pytest.mark.slow
@pytest.mark.nightly
def test_a_part_of_a_network_is_trained_to_the_same_bits(tmp_path: Path) -> None:
    settings = frozen(write_weights(tmp_path / "weights.safetensors"), "tail", data=str(tmp_path / "data"))
    here = start(settings, out=tmp_path / "here")
    (trunks,) = (tmp_path / "data").glob("*-trunks")
    shutil.rmtree(trunks)
    there = start(settings.model_copy(update={"transport": Component(name=NAME)}), out=tmp_path / "there")
    assert differences(fingerprint(here.folder), fingerprint(there.folder)) == ["config.yaml"]


@pytest.mark.slow
@pytest.mark.nightly
def test_closing_is_quiet_after_ray_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = make_simulation(tmp_path)
    try:
        assert _replies(simulation, "echo all") == _echoes("echo all")
        import ray

        ray.shutdown()
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
    finally:
        simulation.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("fail", "Site birch failed with ZeroDivisionError: see problem.txt in its directory."),
        ("leave", "Site birch failed with SystemExit: see problem.txt in its directory."),
        ("end", "Site birch's process ended before it answered: killed, or out of memory."),
        ("kill", "Site birch's process ended before it answered: killed, or out of memory."),
    ],
)
def test_a_failing_site_is_reported_and_the_next_message_is_answered(
    simulation: Faulty, order: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    replies = _replies(simulation, f"{order} birch", timeout=60)
    assert replies == {"alder": f"alder: {order} birch".encode(), "birch": DeliveryFailure(reason=reason)}
    assert _replies(simulation, "echo all") == _echoes("echo all")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_problem_of_a_failing_site_is_read_from_its_directory(simulation: Faulty) -> None:
    lost = _replies(simulation, "fail birch")["birch"]
    assert isinstance(lost, DeliveryFailure)
    assert "17" not in lost.reason
    assert simulation.explain("birch", lost.reason) == "Site birch failed with ZeroDivisionError: sample 17"
    assert simulation.explain("alder", "Odd.") == "Site alder: Odd."


@pytest.mark.slow
def test_hanging_sites_time_out_and_do_not_block_the_next_message(simulation: Faulty) -> None:
    replies = _replies(simulation, "hang all", timeout=1)
    assert replies == {site: DeliveryFailure.from_timeout(site, 1) for site in SITES}
    assert _replies(simulation, "echo all", timeout=60) == _echoes("echo all")


@pytest.mark.slow
def test_a_late_reply_is_not_mistaken_for_the_next(simulation: Faulty) -> None:
    given_up = simulation.deliver(b"nap birch", SITES, timeout=None)
    assert next(given_up) == ("alder", b"alder: nap birch")
    given_up.close()
    assert _replies(simulation, "echo all") == _echoes("echo all")


@pytest.mark.slow
def test_a_second_simulation_is_refused_and_the_first_continues(simulation: Faulty, tmp_path: Path) -> None:
    with pytest.raises(FealError, match="Ray is already running in this process"):
        start(tiny(transport=NAME), out=tmp_path / "run")
    assert _replies(simulation, "echo all") == _echoes("echo all")


@linux
@pytest.mark.slow
def test_all_ports_listen_on_loopback_only(simulation: Faulty) -> None:
    own = faults.family(os.getpid()) | {os.getpid()}
    assert len(own) > 4
    assert faults.strangers(own) == set()


DRIVER = """
import sys
from pathlib import Path
from tests.federation.transport.test_flower_simulation import make_simulation
simulation = make_simulation(Path(sys.argv[1]))
try:
    list(simulation.deliver(b"hang all", simulation.sites(), timeout=None))
finally:
    simulation.close()
"""


def _signalled(
    process: subprocess.Popen[bytes], number: signal.Signals, *, once: Callable[[], bool]
) -> tuple[bytes, bytes, set[int]]:
    """Signal a busy process; return its output and its descendants, none of which may be left."""
    below: set[int] = set()
    try:
        assert _until(once, seconds=240)
        below = faults.family(process.pid)
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
        assert _until(lambda: not any(map(faults.running, below)), seconds=10)
    finally:
        process.kill()
        for pid in filter(faults.running, below):
            os.kill(pid, signal.SIGKILL)
    return output, errors, below


@linux
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_terminated_process_leaves_no_other(number: signal.Signals, tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    at_work = [tmp_path / site / "process" for site in SITES]
    output, errors, below = _signalled(driver, number, once=lambda: all(path.exists() for path in at_work))
    assert {int(path.read_text()) for path in at_work} <= below
    assert output == b""
    if number == signal.SIGINT:
        assert errors.splitlines()[-1] == b"KeyboardInterrupt"
        assert b"ray" not in errors.replace(b"/ray/", b"")


@linux
@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_line_ends_the_simulation_on_sigterm(tmp_path: Path) -> None:
    code = "from feal.cli import main; main()"
    overrides = [f"transport={NAME}", "communication_rounds=1000", "dataset.train=40", "dataset.test=8"]
    run = subprocess.Popen(
        [sys.executable, "-c", code, "run", "demo", *overrides, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    log = tmp_path / "run" / "metrics.jsonl"
    _, errors, _ = _signalled(run, signal.SIGTERM, once=lambda: log.exists() and log.stat().st_size > 0)
    assert run.returncode == 143
    assert errors == b""


def test_without_flower_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(FealError, match=r"needs Flower: install it with `pip install 'feal\[flower\]'`"):
        start(tiny(transport=NAME), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_flower_and_ray_are_imported_only_when_used(tmp_path: Path) -> None:
    assert NAME in TRANSPORTS.names()
    code = "import sys; import feal; from tests.runs import tiny; from feal.experiment import start; "
    code += "from pathlib import Path; start(tiny(rounds=1), out=Path(sys.argv[1]) / 'run'); "
    code += "print({'flwr', 'ray'} & set(sys.modules))"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "set()\n"
