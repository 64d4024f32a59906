"""Keys registered at the SuperLink."""

from pathlib import Path

import pytest
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories

from feal.errors import FealError
from feal.federation.transport.deploy.superlink import register_keys


@pytest.fixture
def state(tmp_path: Path) -> LinkState:
    """The database of a SuperLink."""
    _, factory = get_objectstore_linkstate_factories(str(tmp_path / "link.sqlite"), get_federation_manager())
    return factory.state()


def _key() -> bytes:
    return public_key_to_bytes(generate_key_pairs()[1])


def _known(state: LinkState) -> dict[str, tuple[int, bytes]]:
    nodes = state.get_node_info(statuses=["registered", "online", "offline"])
    return {node.name: (node.node_id, node.public_key) for node in nodes}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_exactly_the_keys_of_the_settings_are_registered(state: LinkState) -> None:
    alder, birch, other = _key(), _key(), _key()
    assert register_keys(state, {"alder": alder, "birch": birch}) == []
    first = _known(state)
    assert {name: key for name, (_, key) in first.items()} == {"alder": alder, "birch": birch}
    register_keys(state, {"alder": alder, "birch": birch})
    assert _known(state) == first
    assert register_keys(state, {"alder": alder, "birch": other}) == ["birch"]
    assert _known(state)["alder"] == first["alder"]
    assert _known(state)["birch"][1] == other
    assert state.get_node_id_by_public_key(birch) is None
    assert register_keys(state, {"alder": alder}) == ["birch"]
    assert set(_known(state)) == {"alder"}
    left = _known(state)
    for sites in ({"alder": alder, "cedar": alder}, {"alder": alder, "cedar": birch}, {"cedar": alder}):
        with pytest.raises(FealError, match="The key of site .* belongs to another site or was removed"):
            register_keys(state, sites)
    assert _known(state) == left
