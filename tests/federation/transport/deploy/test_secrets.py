"""Files that only their owner may read."""

import stat
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.federation.transport.deploy.secrets import check_private, read_secret, require_file, write_secret


def test_a_secret_is_new_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text("open to all")
    path.chmod(0o644)
    first = write_secret(path)
    assert len(first) == 64
    assert read_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_secret(path) != first
    assert [found.name for found in tmp_path.iterdir()] == ["run.key"]


@pytest.mark.parametrize("text", ["", "\n", "0" * 63, "secret", "g" * 64, "0" * 65, "é" * 64])
def test_a_secret_that_could_be_guessed_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(FealError, match="run.key is empty or damaged: remove it"):
        read_secret(path)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_file_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    path.touch()
    path.chmod(mode)
    with pytest.raises(
        FealError, match=r"node.key \(this site's .*\) is readable by other users .* run `chmod 600` on it"
    ):
        check_private(path, "this site's private key")
    path.chmod(0o400)
    check_private(path, "this site's private key")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FealError, match=r"node.key is missing \(this site's private key\)"):
        require_file(tmp_path / "node.key", "this site's private key")
