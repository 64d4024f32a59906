"""What Flower adds to messages is told in full: no field of its calls is passed over, and none is invented."""

import httpx
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from feal.federation.carriage import FIELDS, HEADERS, RECORDS, carriage, envelopes

USUAL = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length"}
"""What any request has, the same from everybody."""


def test_every_call_of_a_supernode_is_told() -> None:
    told = carriage()
    by_itself = {"RegisterNode", "UnregisterNode"}  # only where there are no keys
    calls = {name for name in vars(FleetHttpClient) if name[0].isupper()} - by_itself
    assert len(calls) > 5
    for call in calls:
        assert f"`{call}`" in told
    for name in FIELDS:
        assert f"| `{name.rpartition('.')[2]}` |" in told


def test_every_record_of_a_message_is_told() -> None:
    told = envelopes()
    for name in RECORDS:
        assert f"| `{name}` |" in told


def test_every_header_of_a_call_is_told() -> None:
    sent: dict[str, str] = {}

    def keep(context: ProtobufRequestContext) -> httpx.Response:
        sent.update(context.request.headers)
        return httpx.Response(200, request=context.request)

    request = httpx.Client().build_request(
        "POST", "https://hub.example.org", content=b"x", headers={"accept": "*"}
    )
    context = ProtobufRequestContext("ActivateNode", ActivateNodeRequest(), request)
    signing = NodeAuthHttpInterceptor(*generate_key_pairs())
    RuntimeVersionHttpInterceptor("SuperNode").intercept(context, lambda inner: signing.intercept(inner, keep))
    assert {FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER} <= set(sent)
    assert set(sent) - USUAL == set(HEADERS)
