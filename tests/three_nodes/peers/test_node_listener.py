"""Nodes with a listener of their own: the port for clients refuses what only nodes may say."""

from collections.abc import Iterator

import pytest

from millstream.broker.peers.hello import Hello, encode
from millstream.cluster.founding_messages import AskPromise, AskState
from millstream.cluster.founding_messages import encode as encode_founding
from millstream.cluster.metadata.records import FOR_NODES
from millstream.protocol.api import (
    NODE_CALL,
    PEER_APIS,
    PEER_CLIENT,
    PEER_COMMAND,
    PEER_FOUNDING,
    PEER_HELLO,
    PEER_QUORUM,
)
from millstream.protocol.errors import ErrorCode
from millstream.protocol.peer_client import Greeting, encode_greeting
from support.raw_client import (
    RawClient,
    batch_of,
    fetch_fields,
    fetched_partitions,
    frame,
    produce,
    request_header,
)
from support.three_nodes import ThreeNodes, until


@pytest.fixture(scope="module", params=["direct", "proxy"])
def three(request: pytest.FixtureRequest) -> Iterator[ThreeNodes]:
    three = ThreeNodes(routing=request.param, has_node_listeners=True)
    try:
        yield three
    finally:
        three.close()


def for_nodes(three: ThreeNodes, number: int) -> str:
    endpoints = three.nodes[1].broker.metadata.image.brokers[number].endpoints
    assert [each.listener for each in endpoints] == ["PLAINTEXT", FOR_NODES]
    assert endpoints[0].address == three.nodes[number].listen
    return endpoints[1].address


def say(client: RawClient, key: int, body: bytes) -> None:
    client.send_bytes(frame(request_header(PEER_APIS[key], 0, 1) + body))


def test_replicas_and_forwarded_requests_use_it(three: ThreeNodes) -> None:
    until(lambda: three.create(1, "t", replicas=3) in (0, 36))
    until(lambda: all(three.knows(number, "t") for number in three.nodes))
    leader = three.nodes[1].broker.metadata.image.topics["t"].partitions[0].leader
    is_proxy = three.nodes[1].broker.settings.broker.client_routing == "proxy"
    asked = next(number for number in three.nodes if (number != leader) == is_proxy)
    with RawClient(three.nodes[asked].listen) as client:
        until(lambda: produce(client, "t", batch_of(b"x")).error_code == 0)
        (found,) = fetched_partitions(client.call("fetch", 12, **fetch_fields("t", 0, max_wait_ms=5000)))
        assert found.error_code == 0
        assert b"x" in bytes(found.records)


def test_clients_are_told_only_of_the_port_for_them(three: ThreeNodes) -> None:
    with RawClient(three.nodes[1].listen) as client:
        until(lambda: client.call("metadata", 12, topics=[]).brokers != ())
        told = {(each.host, each.port) for each in client.call("metadata", 12, topics=[]).brokers}
    clients = {tuple(node.broker.listen) for node in three.nodes.values()}
    assert told
    assert told <= clients


@pytest.mark.parametrize("key", [PEER_HELLO, PEER_QUORUM, PEER_COMMAND, NODE_CALL])
def test_the_port_for_clients_does_not_know_the_nodes_apis(three: ThreeNodes, key: int) -> None:
    broker = three.nodes[1].broker
    assert broker.membership is not None
    network = broker.membership.network
    hello = encode(Hello(network.cluster_id, network.me, network.seeds, ""))
    with RawClient(three.nodes[1].listen) as client:
        say(client, key, hello)
        assert client.is_closed_by_broker()


def test_a_follower_is_believed_at_the_nodes_port_only(three: ThreeNodes) -> None:
    fields = {"replica_id": 2, "max_wait": fetch_fields("t", 0)["max_wait"], "topics": []}
    with RawClient(three.nodes[1].listen) as client:
        client.send("fetch", 12, **fields)
        assert client.is_closed_by_broker()
    with RawClient(for_nodes(three, 1)) as client:
        answered = client.call("fetch", 12, **fields)
    assert answered.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_nobody_speaks_for_another_client_at_the_port_for_clients(three: ThreeNodes) -> None:
    cluster_id = three.nodes[1].broker.metadata.image.cluster_id
    pretended = encode_greeting(Greeting(cluster_id, 2, "10.9.9.9:1"))
    with RawClient(three.nodes[1].listen) as client:
        say(client, PEER_CLIENT, pretended)
        assert client.is_closed_by_broker()
    with RawClient(three.nodes[1].listen) as client:
        say(client, PEER_CLIENT, encode_greeting(Greeting()))
        assert client.receive_frame()[4:] == b"", "a tool that wants this very node"
    with RawClient(for_nodes(three, 1)) as client:
        say(client, PEER_CLIENT, pretended)
        assert client.receive_frame()[4:] == b""


def test_a_promise_is_for_nodes_and_a_nodes_state_for_operators(three: ThreeNodes) -> None:
    broker = three.nodes[1].broker
    assert broker.membership is not None
    me = broker.membership.network.me
    with RawClient(three.nodes[1].listen) as client:
        say(client, PEER_FOUNDING, encode_founding(AskState()))
        assert client.receive_frame()[4:] != b""
    with RawClient(three.nodes[1].listen) as client:
        say(client, PEER_FOUNDING, encode_founding(AskPromise(me, (me,))))
        assert client.is_closed_by_broker()
