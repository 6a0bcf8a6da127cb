"""A client of a few requests, for the time to the first acknowledged message.

librdkafka waits up to 100 ms between attempts to connect and learns about a new topic in steps of 100 ms;
that would be measured instead of the broker. This one tries every 5 ms.
"""

import socket
import struct
import time
from collections.abc import Callable

import crc32c

RETRY_SECONDS = 0.005
_PRODUCE, _METADATA = 0, 3
_PRODUCE_VERSION, _METADATA_VERSION = 7, 2
# Not there yet: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER.
_RETRIABLE = frozenset({3, 5, 6})


class FirstAckError(Exception):
    """No acknowledgement in time, or an answer that retrying will not change."""


def wait_for_first_ack(port: int, topic: str, timeout_seconds: float, check: Callable[[], None]) -> float:
    """Blocks until one message is acknowledged with acks=all; returns the moment (perf_counter).

    A topic that does not exist is created by the metadata request, as Kafka's clients do it. `check` is
    called between attempts and raises when waiting has become pointless.
    """
    deadline = time.perf_counter() + timeout_seconds
    problem = "nothing listened"
    while time.perf_counter() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                error = _produce_one(connection, topic)
        except (ConnectionError, OSError) as failure:
            problem = str(failure)
        else:
            if error == 0:
                return time.perf_counter()
            if error not in _RETRIABLE:
                raise FirstAckError(f"the broker answered with error code {error}")
            problem = f"error code {error}"
        check()
        time.sleep(RETRY_SECONDS)
    raise FirstAckError(f"no message was acknowledged within {timeout_seconds:.0f} s: {problem}")


def _produce_one(connection: socket.socket, topic: str) -> int:
    """The first error code that is not zero, or 0."""
    topics = struct.pack(">i", 1) + string(topic)
    answer = call(connection, _METADATA, _METADATA_VERSION, topics)
    error = _metadata_error(answer)
    if error:
        return error
    batch = _record_batch(b"first")
    body = struct.pack(">hhi", -1, -1, 30_000) + topics + struct.pack(">iii", 1, 0, len(batch)) + batch
    answer = call(connection, _PRODUCE, _PRODUCE_VERSION, body)
    # One topic, its name, one partition: array length, string, array length, index, then the error code.
    code: int = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)[0]
    return code


def call(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """The answer after its correlation id."""
    request = struct.pack(">hhi", api_key, version, 1) + string("millstream-bench") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", receive(connection, 4))
    return receive(connection, size)[4:]


def receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return received


def _metadata_error(answer: bytes) -> int:
    """The topic's error code; before it come brokers, cluster id and controller."""
    (broker_count,) = struct.unpack_from(">i", answer, 0)
    position = 4
    for _ in range(broker_count):
        position += 4
        position += _string_size(answer, position) + 4
        position += _string_size(answer, position)
    position += _string_size(answer, position) + 4 + 4
    code: int = struct.unpack_from(">h", answer, position)[0]
    return code


def _string_size(data: bytes, position: int) -> int:
    length: int = struct.unpack_from(">h", data, position)[0]
    return 2 + max(0, length)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _record_batch(value: bytes) -> bytes:
    """One record without key or headers; lengths below 64 are one byte in zigzag coding."""
    record = b"\x00\x00\x00" + b"\x01" + bytes([len(value) * 2]) + value + b"\x00"
    now_ms = int(time.time() * 1000)
    checked = (
        struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + bytes([len(record) * 2]) + record
    )
    after_length = struct.pack(">ibI", -1, 2, crc32c.crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length
