"""Sends our own queue requests, for `QueueConsumer` and `QueueAdmin`."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from millstream.client.errors import from_code
from millstream.client.wire.cluster import Cluster
from millstream.client.wire.connection import Connection
from millstream.protocol.api import QUEUE_CALL
from millstream.protocol.errors import KafkaError
from millstream.protocol.queue_call import QueueRequest, decode_reply, encode_request
from millstream.protocol.record_batch import CONTROL_BIT, BatchHeader, read_header
from millstream.protocol.records import InvalidRecordsError, Record, check_record_count, decode_records

Answer = TypeVar("Answer", bound=msgspec.Struct)

# Limits for unpacking a batch, because any client may have written it.
_UNPACKED_BYTES = 256 << 20
_OPENED_RECORDS = _OPENED_HEADERS = 1_000_000


def ask_node(node: Connection, action: str, request: QueueRequest, kind: type[Answer]) -> Answer:
    try:
        return decode_reply(node.ask(QUEUE_CALL, encode_request(request)), kind)
    except KafkaError as error:
        raise from_code(action, error.code, error.message) from None


def ask_any(cluster: Cluster, action: str, request: QueueRequest, kind: type[Answer]) -> Answer:
    """Asks any node until one answers; only for requests that may be repeated."""
    return cluster.patiently(action, lambda: ask_node(cluster.any_node(), action, request, kind))


def ask_leader(
    cluster: Cluster, action: str, topic: str, partition: int, request: QueueRequest, kind: type[Answer]
) -> Answer:
    return cluster.patiently(
        action, lambda: ask_node(cluster.leader(topic, partition), action, request, kind)
    )


def batches_of(batches: bytes) -> Iterator[tuple[BatchHeader, list[Record] | None]]:
    """Each data batch's header with its records, or None if they cannot be read."""
    view = memoryview(batches)
    at = 0
    while at < len(view):
        header = read_header(view, at)
        if not header.attributes & CONTROL_BIT:
            try:
                check_record_count(header, _OPENED_RECORDS)
                batch = view[at : at + header.size_bytes]
                yield header, decode_records(batch, _UNPACKED_BYTES, _OPENED_HEADERS)
            except InvalidRecordsError:
                yield header, None
        at += header.size_bytes


def records_of(batches: bytes) -> Iterator[Record]:
    """The records of all readable batches."""
    for _, records in batches_of(batches):
        yield from records or ()
