"""A client of our own for what real clients never do: any request at any version, any bytes, in any order."""

import datetime
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from crc32c import crc32c

from millstream.cluster.founding_messages import AskState, decode_state
from millstream.cluster.founding_messages import encode as encode_founding
from millstream.protocol.api import API_VERSIONS, APIS, NEVER_FLEXIBLE, PEER_APIS, PEER_FOUNDING, Api
from millstream.protocol.record_batch import CRC_START, HEADER, HEADER_SIZE, PREFIX_SIZE, read_header
from millstream.protocol.records import Record, encode_batch
from support.kio_messages import build, decode, encode

PATIENCE_S = 90.0
_BY_NAME = {api.name: api for api in APIS.values()}


class ConnectionEnded(AssertionError):
    """The broker closed the connection where a reply was expected."""


class RawClient:
    """One connection. Replies come in the order of the requests, or `receive` fails."""

    def __init__(
        self, address: str, *, client_id: str | None = "raw", receive_buffer: int | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._next_correlation_id = 1
        self._expected: deque[tuple[int, Api, int]] = deque()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close as a crashed machine's kernel does on its return: with a reset instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # -- requests

    def call(self, name: str, version: int, **fields: Any) -> Any:
        self.send(name, version, **fields)
        return self.receive()

    def send(self, name: str, version: int, **fields: Any) -> None:
        self.send_bytes(self.expect(name, version, encode(build(name, version, **fields))))

    def expect(self, name: str, version: int, body: bytes) -> bytes:
        """The whole request with this body; its reply is expected in this place."""
        api = _BY_NAME[name]
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._expected.append((correlation_id, api, version))
        return frame(request_header(api, version, correlation_id, self._client_id) + body)

    def expect_no_reply(self) -> None:
        """The request sent last has none."""
        self._expected.pop()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    # -- replies

    def receive(self) -> Any:
        """The next reply, as kio's class of the version that was asked for."""
        _, api, version = self._expected[0]
        return decode(api.name, version, "response", self.receive_body())

    def receive_body(self) -> bytes:
        """The next reply's bytes after its header."""
        correlation_id, api, version = self._expected.popleft()
        reply = self.receive_frame()
        assert struct.unpack_from(">i", reply) == (correlation_id,), (
            "replies are in the order of the requests"
        )
        if api.key != API_VERSIONS and api.is_flexible(version):
            assert reply[4] == 0, "the reply's header has no tagged fields"
            return reply[5:]
        return reply[4:]

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def has_reply(self, within_s: float = 0.0) -> bool:
        """Something has come, be it the end."""
        self.socket.settimeout(max(within_s, 0.001))
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return True

    def is_closed_by_broker(self, within_s: float = PATIENCE_S) -> bool:
        """Waits for the end of the connection and says whether it came; anything else that comes is an error."""
        self.socket.settimeout(within_s)
        try:
            data = self.socket.recv(1)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        assert not data, f"{data!r} came instead of the end of the connection"
        return True

    def _read(self, size: int) -> bytes:
        data = bytearray()
        deadline = time.monotonic() + PATIENCE_S
        while len(data) < size:
            assert time.monotonic() < deadline, f"{len(data)} of {size} bytes came within {PATIENCE_S} s"
            try:
                received = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise ConnectionEnded(str(error)) from None
            if not received:
                raise ConnectionEnded(f"the connection ended after {len(data)} of {size} bytes")
            data += received
        return bytes(data)


def request_header(api: Api, version: int, correlation_id: int, client_id: str | None = "raw") -> bytes:
    name = (
        b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    )
    tags = b"\0" if api.flexible_from != NEVER_FLEXIBLE and api.is_flexible(version) else b""
    return struct.pack(">hhi", api.key, version, correlation_id) + name + tags


def frame(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


# -- what most tests begin with


def batch_of(*values: bytes, timestamp_ms: int | None = None, **options: Any) -> bytes:
    """A record batch as a producer sends it."""
    now = round(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return encode_batch([Record(i, now + i, None, value) for i, value in enumerate(values)], **options)


def garbage_batch(codec: int = 0, timestamp_ms: int | None = None) -> bytes:
    """A batch that is sound from outside, of two records that are none."""
    batch = bytearray(batch_of(b"a", b"b", timestamp_ms=timestamp_ms)[:HEADER_SIZE] + b"\xfe" * 40)
    header = read_header(batch)._replace(batch_length=len(batch) - PREFIX_SIZE, attributes=codec)
    HEADER.pack_into(batch, 0, *header)
    HEADER.pack_into(batch, 0, *header._replace(crc=crc32c(bytes(batch[CRC_START:]))))
    return bytes(batch)


def node_address(listen: str) -> str:
    """Where other nodes connect to the node that clients reach there."""
    with RawClient(listen) as client:
        client.send_bytes(frame(request_header(PEER_APIS[PEER_FOUNDING], 0, 1) + encode_founding(AskState())))
        return decode_state(client.receive_frame()[4:]).nodes_at


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: object) -> str:
    """Configs by Kafka's names, with underscores for dots."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()],
    }
    (result,) = client.call("create_topics", 7, topics=[topic]).topics
    assert result.error_code == 0, result.error_message
    return name


def produce_fields(topic: str, *batches: bytes, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    """The fields of a Produce request that puts one batch into each of the partitions from `partition` on."""
    partitions = [{"index": partition + i, "records": batch} for i, batch in enumerate(batches)]
    return {
        "acks": acks,
        "timeout": milliseconds(15_000),
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }


def produce(client: RawClient, topic: str, *batches: bytes, partition: int = 0, version: int = 9) -> Any:
    """The outcome of the first partition."""
    reply = client.call("produce", version, **produce_fields(topic, *batches, partition=partition))
    return reply.responses[0].partition_responses[0]


def fetch_fields(
    topic: str,
    *offsets: int,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    **others: Any,
) -> dict[str, Any]:
    """The fields of a Fetch request of the partitions 0, 1, ... from these offsets on."""
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        for index, offset in enumerate(offsets)
    ]
    return {
        "max_wait": milliseconds(max_wait_ms),
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": [{"topic": topic, "partitions": partitions}],
        **others,
    }


def fetched_partitions(reply: Any) -> Sequence[Any]:
    return [partition for topic in reply.responses for partition in topic.partitions]


def milliseconds(count: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=count)
