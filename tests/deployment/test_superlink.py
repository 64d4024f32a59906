"""Which keys the SuperLink knows."""

from pathlib import Path

import pytest
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

from feal.deployment.superlink import register
from feal.errors import FealError


@pytest.fixture
def state(tmp_path: Path) -> LinkState:
    """The database that a SuperLink keeps."""
    _, factory = get_objectstore_linkstate_factories(str(tmp_path / "link.sqlite"), get_federation_manager())
    return factory.state()


def _key() -> bytes:
    return public_key_to_bytes(generate_key_pairs()[1])


def _known(state: LinkState) -> dict[str, tuple[int, bytes]]:
    nodes = state.get_node_info(statuses=["registered", "online", "offline"])
    return {node.name: (node.node_id, node.public_key) for node in nodes}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_keys_are_those_of_the_settings_and_no_others(state: LinkState) -> None:
    alder, birch, other = _key(), _key(), _key()
    assert register(state, {"alder": alder, "birch": birch}) == []
    first = _known(state)
    assert {name: key for name, (_, key) in first.items()} == {"alder": alder, "birch": birch}
    register(state, {"alder": alder, "birch": birch})
    assert _known(state) == first
    assert register(state, {"alder": alder, "birch": other}) == ["birch"]
    assert _known(state)["alder"] == first["alder"]
    assert _known(state)["birch"][1] == other
    assert state.get_node_id_by_public_key(birch) is None
    assert register(state, {"alder": alder}) == ["birch"]
    assert set(_known(state)) == {"alder"}
    left = _known(state)
    for sites in ({"alder": alder, "cedar": alder}, {"alder": alder, "cedar": birch}, {"cedar": alder}):
        with pytest.raises(FealError, match="The key of site .* is another site's, or one that was removed"):
            register(state, sites)
    assert _known(state) == left
