"""The hand-written requests against kio's schemas, and the SASL exchanges against their standards."""

import base64
import hashlib
import hmac
import uuid
from typing import Any

import pytest

from millstream.client.errors import NotAuthorizedError
from millstream.client.wire import requests, sasl
from millstream.client.wire.settings import Sasl
from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition, encode_fetch_reply
from support.kio_messages import build, decode, encode


@pytest.mark.parametrize("version", [7, 8, 9, 10, 12])
def test_metadata(version: int) -> None:
    asked = decode("metadata", version, "request", requests.metadata_request(["a", "b"], version))
    assert [topic.name for topic in asked.topics] == ["a", "b"]
    assert asked.allow_auto_topic_creation is False
    assert decode("metadata", version, "request", requests.metadata_request(None, version)).topics is None
    topic_id = uuid.UUID(int=7) if version >= 10 else None
    reply = build(
        "metadata", version, "response",
        brokers=[{"node_id": 4, "host": "h", "port": 9, "rack": "r"}],
        cluster_id="c", controller_id=4,
        topics=[
            {"name": "a", "is_internal": True, "error_code": _code(0), **({"topic_id": topic_id} if topic_id else {}),
             "partitions": [{"partition_index": 1, "leader_id": 4, "replica_nodes": (4, 5), "isr_nodes": (4,),
                             "leader_epoch": 3, "error_code": _code(0)},
                            {"partition_index": 0, "leader_id": -1, "error_code": _code(5)}]},
        ],
    )  # fmt: skip
    info = requests.read_metadata(memoryview(encode(reply)), version)
    assert info.brokers == {4: (4, "h", 9, "r")}
    assert (info.cluster_id, info.controller_id) == ("c", 4)
    (topic,) = info.topics
    assert (topic.name, topic.is_internal) == ("a", True)
    assert topic.topic_id == (topic_id.bytes if topic_id else bytes(16))
    assert [(each.partition, each.leader) for each in topic.partitions] == [(0, -1), (1, 4)]
    assert (topic.partitions[1].replicas, topic.partitions[1].leader_epoch) == ((4, 5), 3)


def test_list_offsets() -> None:
    asked = decode("list_offsets", 5, "request", requests.list_offsets_request({"t": {0: -2, 3: 77}}, 1))
    assert asked.isolation_level == 1
    assert [each.partition_index for each in asked.topics[0].partitions] == [0, 3]
    reply = build(
        "list_offsets", 5, "response",
        topics=[{"name": "t", "partitions": [{"partition_index": 3, "offset": 12, "error_code": _code(6)}]}],
    )  # fmt: skip
    assert requests.read_list_offsets(memoryview(encode(reply))) == [requests.FoundOffset("t", 3, 6, 12)]


def test_fetch_by_id() -> None:
    topic_id = uuid.UUID(int=9)
    body = requests.fetch_request(topic_id.bytes, 2, 99, max_bytes=1000, max_wait_ms=5)
    asked = decode("fetch", 13, "request", body)
    (partition,) = asked.topics[0].partitions
    assert asked.topics[0].topic_id == topic_id
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 99, 1000)
    fetched = FetchedPartition(topic_id.bytes, 2, ErrorCode.NONE, 120, 110, 5, b"the batches")
    body = b"".join(encode_fetch_reply(13, [fetched]))
    reply = requests.read_fetch(memoryview(body), by_id=True)
    at, size = reply.records
    assert body[at : at + size] == b"the batches"
    assert (reply.high_watermark, reply.log_start_offset) == (120, 5)


def test_fetch() -> None:
    body = requests.fetch_request("t", 2, 99, max_bytes=1000, max_wait_ms=5, min_bytes=1, isolation_level=1)
    asked = decode("fetch", 11, "request", body)
    (partition,) = asked.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 99, 1000)
    assert (asked.isolation_level, asked.max_bytes, asked.rack_id) == (1, 1000, "")
    fetched = FetchedPartition("t", 2, ErrorCode.NONE, 120, 110, 5, b"the batches")
    body = b"".join(encode_fetch_reply(11, [fetched]))
    reply = requests.read_fetch(memoryview(body))
    at, size = reply.records
    assert body[at : at + size] == b"the batches"
    assert (reply.error, reply.high_watermark, reply.last_stable_offset, reply.log_start_offset) == (
        0,
        120,
        110,
        5,
    )


def test_the_broker_proves_itself_in_scram() -> None:
    """The exchange of RFC 7677, with the server's side computed here."""
    salt, iterations = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, iterations)
    server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    sent: list[str] = []

    def server(token: bytes) -> bytes:
        sent.append(token.decode())
        if len(sent) == 1:
            nonce = sent[0].rpartition("r=")[2]
            return f"r={nonce}{server_nonce},s={base64.b64encode(salt).decode()},i={iterations}".encode()
        signed = f"{sent[0][3:]},{challenge()},{sent[1].rpartition(',p=')[0]}".encode()
        key = hmac.digest(salted, b"Server Key", "sha256")
        return b"v=" + base64.b64encode(hmac.digest(key, signed, "sha256"))

    def challenge() -> str:
        nonce = sent[0].rpartition("r=")[2]
        return f"r={nonce}{server_nonce},s={base64.b64encode(salt).decode()},i={iterations}"

    sasl._scram(server, Sasl("SCRAM-SHA-256", "user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    assert sent[1].endswith("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    sent.clear()
    with pytest.raises(NotAuthorizedError, match="does not know the user's password"):
        sasl._scram(server, Sasl("SCRAM-SHA-256", "user", "pen"), "rOprNGfwEbeRWgbNEkqO")


def _code(value: int) -> Any:
    from kio.schema.errors import ErrorCode as KioCode

    return KioCode(value)
