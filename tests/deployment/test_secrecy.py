"""Files that only their owner may read."""

import stat
from pathlib import Path

import pytest

from feal.deployment.secrecy import check_private, existing, new_secret, read_secret
from feal.errors import FealError


def test_a_secret_is_new_whole_and_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text("open to all")
    path.chmod(0o644)
    first = new_secret(path)
    assert len(first) == 64
    assert read_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert new_secret(path) != first
    assert [found.name for found in tmp_path.iterdir()] == ["run.key"]


@pytest.mark.parametrize("text", ["", "\n", "0" * 63, "secret", "g" * 64, "0" * 65, "é" * 64])
def test_a_secret_that_could_be_guessed_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(FealError, match="run.key is empty or damaged: remove it"):
        read_secret(path)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_what_others_can_read_is_no_secret(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    path.touch()
    path.chmod(mode)
    with pytest.raises(FealError, match=r"node.key \(this site's .*\) is open to others .* `chmod 600` it"):
        check_private(path, "this site's private key")
    path.chmod(0o400)
    check_private(path, "this site's private key")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FealError, match=r"node.key is missing \(this site's private key\)"):
        existing(tmp_path / "node.key", "this site's private key")
