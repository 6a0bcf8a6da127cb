"""Every API at every version it is served: the reply is one that kio reads, in the version that was asked for."""

from typing import Any

import pytest

from millstream.protocol.api import APIS, FEATURES, FEATURES_EPOCH, PRODUCE, PRODUCE_SERVED_FROM, Api
from millstream.protocol.errors import ErrorCode
from support.kio_messages import decode
from support.node import NodeProcess
from support.raw_client import RawClient, milliseconds

VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(PRODUCE_SERVED_FROM if api.key == PRODUCE else api.min_version, api.max_version + 1)
]
# Where an empty request would have no reply or an endless wait.
FIELDS: dict[str, dict[str, Any]] = {"produce": {"acks": 1}, "fetch": {"max_wait": milliseconds(0)}}


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda each: getattr(each, "name", f"v{each}"))
def test_the_reply_to_an_empty_request_is_whole(client: RawClient, api: Api, version: int) -> None:
    client.call(api.name, version, **FIELDS.get(api.name, {}))
    assert client.call("api_versions", 0).error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(client: RawClient, version: int) -> None:
    answer = client.call("api_versions", version)
    assert answer.error_code == 0
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        api.key: (api.min_version, api.max_version) for api in APIS.values()
    }


@pytest.mark.parametrize(
    ("name", "version"),
    [(f"{change}_delegation_token", 2) for change in ("create", "renew", "expire", "describe")],
)
def test_delegation_tokens_are_refused_by_name(client: RawClient, name: str, version: int) -> None:
    assert client.call(name, version).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_tells_the_features(client: RawClient, version: int) -> None:
    answer = client.call("api_versions", version)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    finalized = {
        each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features
    }
    assert supported == finalized == {name: (level, level) for name, level in FEATURES.items()}
    assert supported["metadata.version"] == (30, 30)
    assert answer.finalized_features_epoch == FEATURES_EPOCH


def test_the_reply_to_api_versions_never_has_a_flexible_header(client: RawClient) -> None:
    """A client that does not know the broker's versions must be able to read it."""
    client.send("api_versions", 4)
    client.expect_no_reply()
    reply = client.receive_frame()
    assert decode("api_versions", 4, "response", reply[4:]).error_code == 0


def test_no_request_made_the_node_stumble(broker: NodeProcess, client: RawClient) -> None:
    assert client.call("api_versions", 0).error_code == 0
    assert broker.log_entries("request failed") == []
    assert "Traceback" not in broker.log_tail(500)
