"""A real deployment on this machine: a SuperLink and three SuperNodes, TLS, registered keys."""

from pathlib import Path

import pytest

from feal import __version__
from feal.data import open_prepared
from feal.experiment import Result, resume, start
from tests.command import Command
from tests.federation.transport import faults
from tests.federation.transport.conftest import assert_no_data_passed, settings_for
from tests.federation.transport.consortium import Consortium
from tests.people import answer_all, requests, truth, write_answers
from tests.runs import differences, fingerprint

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def deployed(consortium: Consortium, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run the same through the deployment."""
    return start(settings_for(consortium), out=tmp_path_factory.mktemp("deployed") / "run")


def test_the_same_bits_as_in_one_process(consortium: Consortium, deployed: Result, reference: Result) -> None:
    run = consortium.gathered(deployed.folder)
    assert differences(fingerprint(reference.folder), fingerprint(run)) == ["config.yaml"]


def test_no_data_leaves_a_site(consortium: Consortium, deployed: Result) -> None:
    assert_no_data_passed(consortium, model=deployed.folder / "weights" / "round-002.safetensors")


def test_only_the_port_of_the_coordinator_is_open(consortium: Consortium) -> None:
    for name in ("coordinator", *consortium.sites):
        assert faults.strangers(consortium.running[name].members()) == set()
    assert f"127.0.0.1:{consortium.port}" in consortium.running["coordinator"].said()


def test_status_shows_the_sites_and_the_run(consortium: Consortium, deployed: Result, command: Command) -> None:
    shown = command("deploy", "status", consortium.coordinator)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert f"{deployed.folder}: feal on synthetic-lesions, seed 0, finished after 2 rounds." in lines
    for name in consortium.sites:
        (line,) = (line for line in lines if line.strip().startswith(name))
        assert line.split()[1] == "yes"
        assert line.split()[3:5] == ["s", "ago"]
        assert line.split()[5:] == [__version__, "close_round", "2.0", "10", "0"]


def test_annotators_work_at_their_sites_and_a_slow_one_does_not_block_the_run(
    consortium: Consortium, tmp_path: Path, command: Command
) -> None:
    share = {"annotator.min_share": 0.6}
    settings = settings_for(consortium, annotator="folder", quorum=2, rounds=1, communication_rounds=1, **share)
    result = start(settings, out=tmp_path / "run")
    assert result.status == "waiting"
    answer_all(
        consortium.run_folder(result.folder, "alder"), open_prepared(consortium.place("alder") / "prepared")
    )
    cedar = open_prepared(consortium.place("cedar") / "prepared")
    asked = requests(consortium.run_folder(result.folder, "cedar"))
    write_answers(asked[0].folder, [(line.sample, truth(cedar, line)) for line in asked[:2]])
    assert resume(result.folder).status == "waiting"
    write_answers(asked[0].folder, [(line.sample, truth(cedar, line)) for line in asked[:3]])
    shown = command("labels", consortium.run_folder(result.folder, "birch"))
    assert shown.code == 0, shown.err
    assert "5 pending in round 1" in shown.out
    finished = resume(result.folder)
    assert finished.status == "finished"
    assert finished.rounds[0].labels == {"alder": 5, "birch": 0, "cedar": 3}
    assert "birch" in command("deploy", "status", consortium.coordinator).out
