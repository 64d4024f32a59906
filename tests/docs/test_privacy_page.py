"""The privacy page is up to date, and describes every field, record, call and header that crosses the border."""

import httpx
import pytest
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from feal.federation import protocol as messages
from feal.metrics.statistics import Statistics
from flower_calls import FIELDS, HEADERS, describe_calls
from privacy_page import RECORDS, describe_records, privacy_page
from tests.paths import PROJECT

USUAL = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length"}
"""Headers that are the same in every HTTP request."""


def test_page_is_up_to_date() -> None:
    assert (PROJECT / "docs" / "privacy.md").read_text() == privacy_page()


@pytest.mark.parametrize("type_", [*messages.REQUESTS.values(), *messages.REPLIES.values(), Statistics])
def test_every_field_that_crosses_the_border_is_described(type_: type) -> None:
    for name, field in type_.model_fields.items():
        assert field.description, f"{type_.__name__}.{name}"


def test_every_call_of_a_supernode_is_described() -> None:
    page = describe_calls()
    without_keys = {"RegisterNode", "UnregisterNode"}
    calls = {name for name in vars(FleetHttpClient) if name[0].isupper()} - without_keys
    assert len(calls) > 5
    for call in calls:
        assert f"`{call}`" in page
    for name in FIELDS:
        assert f"| `{name.rpartition('.')[2]}` |" in page


def test_every_record_of_a_message_is_described() -> None:
    page = describe_records()
    for name in RECORDS:
        assert f"| `{name}` |" in page


def test_every_header_of_a_call_is_described() -> None:
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
