"""The hand-written requests against kio's schemas, and the SASL exchanges against their standards."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the `spark` extra is not installed")

from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition, encode_fetch_reply
from millstream.spark.wire import requests, sasl
from millstream.spark.wire.errors import AuthenticationFailed
from millstream.spark.wire.settings import Sasl
from support.kio_messages import build, decode, encode


def test_metadata() -> None:
    asked = decode("metadata", 7, "request", requests.metadata_request(["a", "b"]))
    assert [topic.name for topic in asked.topics] == ["a", "b"]
    assert asked.allow_auto_topic_creation is False
    assert decode("metadata", 7, "request", requests.metadata_request(None)).topics is None
    reply = build(
        "metadata", 7, "response",
        brokers=[{"node_id": 4, "host": "h", "port": 9}],
        topics=[
            {"name": "a", "is_internal": True, "error_code": _code(0),
             "partitions": [{"partition_index": 1, "leader_id": 4, "replica_nodes": (4, 5), "isr_nodes": (4,),
                             "error_code": _code(0)},
                            {"partition_index": 0, "leader_id": -1, "error_code": _code(5)}]},
        ],
    )  # fmt: skip
    info = requests.read_metadata(memoryview(encode(reply)))
    assert info.brokers == {4: ("h", 9)}
    (topic,) = info.topics
    assert (topic.name, topic.is_internal) == ("a", True)
    assert [(each.partition, each.leader) for each in topic.partitions] == [(0, -1), (1, 4)]


def test_list_offsets() -> None:
    asked = decode("list_offsets", 5, "request", requests.list_offsets_request({"t": {0: -2, 3: 77}}, 1))
    assert asked.isolation_level == 1
    assert [each.partition_index for each in asked.topics[0].partitions] == [0, 3]
    reply = build(
        "list_offsets", 5, "response",
        topics=[{"name": "t", "partitions": [{"partition_index": 3, "offset": 12, "error_code": _code(6)}]}],
    )  # fmt: skip
    assert requests.read_list_offsets(memoryview(encode(reply))) == [requests.FoundOffset("t", 3, 6, 12)]


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
    with pytest.raises(AuthenticationFailed, match="does not know the user's password"):
        sasl._scram(server, Sasl("SCRAM-SHA-256", "user", "pen"), "rOprNGfwEbeRWgbNEkqO")


def _code(value: int) -> Any:
    from kio.schema.errors import ErrorCode as KioCode

    return KioCode(value)
