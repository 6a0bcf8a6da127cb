"""Input that no Kafka client sends: the connection ends with one line that says why, and the node goes on."""

import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest

from millstream.protocol.api import APIS, NODE_CALL, PEER_COMMAND, PEER_HELLO, PEER_QUORUM
from millstream.protocol.wire import uvarint
from support.kio_messages import build, decode, encode
from support.node import NodeProcess
from support.raw_client import RawClient, frame, node_address, request_header
from support.waiting import wait_for

METADATA = APIS[3]


@pytest.fixture(autouse=True)
def node_stays_well(broker: NodeProcess) -> Iterator[None]:
    """Whatever a test sends, another client is served afterwards and nothing of ours has failed."""
    failures = len(broker.log_entries("request failed")) + len(broker.log_entries("task failed"))
    yield
    with RawClient(broker.listen) as client:
        assert client.call("metadata", 12, topics=[]).brokers
    assert len(broker.log_entries("request failed")) + len(broker.log_entries("task failed")) == failures
    assert "Traceback" not in broker.log_tail(200)


def refusals(broker: NodeProcess, client: RawClient) -> list[str]:
    """What the node logged about this connection."""
    host, port = client.socket.getsockname()
    lines = broker.log_entries("connection closed")
    return [str(line["reason"]) for line in lines if line.get("peer") == f"{host}:{port}"]


def request(key: int, version: int, body: bytes = b"", correlation_id: int = 7) -> bytes:
    return frame(request_header(APIS[key], version, correlation_id) + body)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"),
        (b"\x7f\xff\xff\xff", "a request of 2147483647 bytes"),
        (struct.pack(">i", 104_857_601), "socket.request.max.bytes"),
        (struct.pack(">i", -1), "a request of -1 bytes"),
        (struct.pack(">i", -(2**31)), "a request of -2147483648 bytes"),
        (bytes(4), "a request of 0 bytes"),
        (frame(b"1234567"), "a request of 7 bytes"),
        (b"\xff" * 100, "a request of -1 bytes"),
        (b"hello, is this a broker?\r\n", "a request of 1751477356 bytes"),
        (frame(struct.pack(">hhi", 3, 12, 1)), "a request of 8 bytes"),
        (frame(struct.pack(">hhih", 3, 12, 1, 30_000)), "bytes expected"),
        (frame(struct.pack(">hhih", 3, 12, 1, -2)), "bytes expected"),
        (frame(struct.pack(">hhih", 3, 12, 1, 2) + b"\xff\xff" + bytes(20)), "not UTF-8"),
        (frame(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999 is not served here"),
        (frame(struct.pack(">hhih", -1, 0, 1, -1)), "API key -1 is not served here"),
        (frame(struct.pack(">hhih", 4, 0, 1, -1)), "API key 4 is not served here"),
        (frame(struct.pack(">hhih", PEER_HELLO, 0, 1, -1)), "API key 30000 is not served here"),
        (frame(struct.pack(">hhih", NODE_CALL, 0, 1, -1)), "API key 30005 is not served here"),
        (request(3, 14), "metadata version 14 is not served; 0 to 13 are"),
        (frame(struct.pack(">hhih", 3, -1, 1, -1)), "metadata version -1 is not served"),
        (request(1, 3), "fetch version 3 is not served; 4 to 18 are"),
        (request(19, 1), "create_topics version 1 is not served"),
        (request(3, 12, b"\xff" * 30), "too long"),
        (request(3, 12, b"\x02" + bytes(3)), "bytes expected"),
        (request(3, 1, struct.pack(">i", 2**31 - 1)), "an array claims 2147483647 elements"),
        (request(3, 1, struct.pack(">i", -2)), "an array claims -2 elements"),
        (request(19, 2, struct.pack(">i", 2**30) + bytes(50)), "an array claims"),
        (request(19, 7, uvarint(2**34) + bytes(50)), "an array claims"),
        (request(20, 4, uvarint(2**31) + bytes(50)), "an array claims"),
        (request(19, 2, struct.pack(">i", -1) + bytes(5)), "topics is null"),
        (request(2, 7, bytes(5) + b"\2\0"), "null"),
        (request(22, 4, b"\0\xff"), "bytes expected"),
        (request(60, 2, bytes(50)), "bytes unread"),
    ],
)
def test_what_is_no_request_ends_the_connection_with_its_reason(
    broker: NodeProcess, client: RawClient, data: bytes, reason: str
) -> None:
    client.send_bytes(data)
    assert client.is_closed_by_broker()
    (told,) = refusals(broker, client)
    assert reason in told


@pytest.mark.parametrize(
    ("key", "body", "reason"),
    [
        (PEER_HELLO, b"", "a greeting between nodes cannot be read"),
        (PEER_QUORUM, bytes(50), "this node is alone"),
        (PEER_COMMAND, bytes(50), "unknown command"),
    ],
)
def test_rubbish_at_the_nodes_port_is_refused_too(
    broker: NodeProcess, key: int, body: bytes, reason: str
) -> None:
    with RawClient(node_address(broker.listen)) as client:
        client.send_bytes(frame(struct.pack(">hhih", key, 0, 1, -1) + body))
        assert client.is_closed_by_broker()
        (told,) = refusals(broker, client)
        assert reason in told


def test_a_tls_client_fails_at_once_instead_of_waiting(broker: NodeProcess) -> None:
    host, _, port = broker.listen.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), timeout=60) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        context.wrap_socket(plain)


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_api_versions_of_a_newer_client_is_answered_in_version_0(client: RawClient, version: int) -> None:
    client.send_bytes(frame(struct.pack(">hhih", 18, version, 9, -1) + b"\0\1\1\0"))
    reply = client.receive_frame()
    assert struct.unpack_from(">i", reply) == (9,)
    answer = decode("api_versions", 0, "response", reply[4:])
    assert answer.error_code == 35
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        api.key: (api.min_version, api.max_version) for api in APIS.values()
    }
    assert client.call("api_versions", 4).error_code == 0


@pytest.mark.parametrize("cut", [1, 3, 4, 10, 40])
def test_a_request_cut_off_by_the_client_is_told_in_one_line(
    broker: NodeProcess, client: RawClient, cut: int
) -> None:
    whole = frame(
        request_header(METADATA, 12, 1) + encode(build("metadata", 12, topics=[{"name": "x" * 100}]))
    )
    client.send_bytes(whole[:cut])
    client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed_by_broker()
    told = wait_for(lambda: refusals(broker, client), bool, "the line is written")
    assert told == ["the client left in the middle of a request"]


def test_a_client_that_leaves_between_requests_is_no_event(broker: NodeProcess, client: RawClient) -> None:
    assert client.call("metadata", 12, topics=[]).brokers
    client.socket.shutdown(socket.SHUT_WR)
    assert client.is_closed_by_broker()
    assert refusals(broker, client) == []


def test_a_large_request_cut_off_by_a_reset_is_told_in_one_line(
    broker: NodeProcess, connect: Callable[[], RawClient]
) -> None:
    cut_off = [connect() for _ in range(3)]
    peers = {"{}:{}".format(*client.socket.getsockname()) for client in cut_off}
    for client in cut_off:
        # More than lies between two sockets: some of it has been read when the reset takes the rest.
        client.send_bytes(struct.pack(">i", 50_000_000) + bytes(20_000_000))
        client.reset()

    def told() -> list[str]:
        lines = broker.log_entries("connection closed")
        return [str(line["reason"]) for line in lines if line["peer"] in peers]

    wait_for(told, bool, "a line about them")
    assert set(told()) == {"the client left in the middle of a request"}


def test_a_connection_that_says_nothing_is_left_alone(client: RawClient) -> None:
    assert not client.is_closed_by_broker(within_s=0.3)
    assert client.call("api_versions", 4).error_code == 0


def test_replies_to_requests_before_the_bad_one_are_sent(broker: NodeProcess, client: RawClient) -> None:
    good = b"".join(client.expect("metadata", 1, b"\0\0\0\0") for _ in range(20))
    client.send_bytes(good + frame(struct.pack(">hhih", 999, 0, 1, -1)) + good)
    for _ in range(20):
        client.receive_body()
    assert client.is_closed_by_broker()
    assert len(refusals(broker, client)) == 1


@pytest.mark.parametrize("size", [32_767, 250_000, 5_000_000])
def test_a_huge_name_is_refused_by_name_not_by_silence(client: RawClient, size: int) -> None:
    """Non-flexible versions have no room for more than 32,767 bytes; flexible ones have."""
    name = "n" * size
    version = 7 if size > 32_767 else 4
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (refused,) = client.call("create_topics", version, topics=[topic]).topics
    assert (refused.error_code, len(refused.name)) == (17, size)
    wanted = 12 if size > 32_767 else 4
    (unknown,) = client.call("metadata", wanted, topics=[{"name": name}]).topics
    assert unknown.error_code == 17


def test_names_with_every_kind_of_character_are_refused_politely(client: RawClient) -> None:
    for name in (
        "",
        ".",
        "..",
        "a/b",
        "../../etc/passwd",
        "a\0b",
        "\n",
        "ü",
        "\U0010ffff",
        "a b",
        "%s",
        "{}",
    ):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        (refused,) = client.call("create_topics", 4, topics=[topic]).topics
        assert refused.error_code == 17, name
        (unknown,) = client.call("metadata", 9, topics=[{"name": name}]).topics
        assert unknown.error_code == 17, name
        offsets = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert client.call("list_offsets", 7, topics=offsets).topics[0].partitions[0].error_code == 3


def test_a_client_without_a_name_is_served(broker: NodeProcess) -> None:
    with RawClient(broker.listen, client_id=None) as client:
        assert client.call("metadata", 12, topics=[]).brokers
    with RawClient(broker.listen, client_id="") as client:
        assert client.call("metadata", 0).brokers


def test_tagged_fields_of_the_header_are_skipped(client: RawClient) -> None:
    header = request_header(METADATA, 12, 5)[:-1] + b"\2\0\3abc\x7f\0"
    client.send_bytes(frame(header + encode(build("metadata", 12, topics=[]))))
    assert struct.unpack_from(">i", client.receive_frame()) == (5,)


def test_garbage_on_many_connections_at_once(broker: NodeProcess, client: RawClient) -> None:
    chance = random.Random(7)
    others = [RawClient(broker.listen) for _ in range(100)]
    try:
        for each in others:
            size = chance.randrange(8, 2000)
            each.send_bytes(struct.pack(">i", size) + chance.randbytes(size))
        for each in others:
            assert each.is_closed_by_broker()
        assert client.call("metadata", 12, topics=[]).brokers
    finally:
        for each in others:
            each.close()
