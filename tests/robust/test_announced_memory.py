"""Memory is reserved for what has come: who announces much and sends little keeps no one out."""

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.kio_messages import build, encode
from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import RawClient, batch_of, create_topic, produce, produce_fields
from support.waiting import wait_for

MB = 1 << 20


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def announce(client: RawClient, size: int, sent: int) -> None:
    """The beginning of a Produce request of that size."""
    whole = client.expect("produce", 9, encode(build("produce", 9, **produce_fields("t", b"x"))))
    client.expect_no_reply()
    client.send_bytes((struct.pack(">i", size) + whole[4:] + bytes(sent))[: sent + 4])


def in_flight(node: NodeProcess) -> float:
    return metric(node, "millstream_in_flight_bytes")


def test_announcing_a_hundred_megabytes_reserves_next_to_nothing(
    start_node: Callable[..., NodeProcess], clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    node = start_node()
    for _ in range(20):
        announce(clients.enter_context(RawClient(node.listen)), 100 * MB, 1000)
    client = clients.enter_context(RawClient(node.listen))
    name = create_topic(client, new_topic())
    wait_for(lambda: in_flight(node), lambda used: used > 0, "they are being read")
    assert in_flight(node) <= 20 * 65536
    assert produce(client, name, batch_of(b"x" * 900_000)).error_code == 0


def test_small_requests_pass_while_large_ones_hold_all_they_may(
    start_node: Callable[..., NodeProcess], clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    node = start_node(settings={"performance.max_in_flight_bytes": "32MB"})
    for _ in range(6):
        announce(clients.enter_context(RawClient(node.listen)), 9 * MB, 3 * MB)
    wait_for(
        lambda: metric(node, "millstream_requests_waiting_for_memory"),
        lambda waiting: waiting > 0,
        "large requests wait",
    )
    client = clients.enter_context(RawClient(node.listen))
    name = create_topic(client, new_topic())
    for _ in range(3):
        assert produce(client, name, batch_of(b"x" * 800_000)).error_code == 0


def test_who_stops_half_way_is_closed_when_others_wait_for_its_memory(
    start_node: Callable[..., NodeProcess], clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    node = start_node(
        settings={"performance.max_in_flight_bytes": "16MB", "kafka.message.max.bytes": "4000000"}
    )
    stalled = [clients.enter_context(RawClient(node.listen)) for _ in range(8)]
    for each in stalled:
        announce(each, 9 * MB, 2 * MB - 1000)
    client = clients.enter_context(RawClient(node.listen))
    name = create_topic(client, new_topic(), max_message_bytes=4_000_000)
    # It goes on, and is answered whatever the others do.
    assert produce(client, name, batch_of(b"x" * 3_000_000)).error_code == 0
    wait_for(
        lambda: (
            [
                line
                for line in node.log_entries("connection closed")
                if "others wait for its memory" in str(line["reason"])
            ]
            or in_flight(node) < 8 * MB
        ),
        bool,
        "memory is free again",
    )
    assert produce(client, name, batch_of(b"x" * 3_000_000)).error_code == 0


def test_a_request_read_in_parts_arrives_whole(
    start_node: Callable[..., NodeProcess], clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    node = start_node(settings={"kafka.message.max.bytes": "40000000"})
    client = clients.enter_context(RawClient(node.listen))
    name = create_topic(client, new_topic(), max_message_bytes=40_000_000)
    value = bytes(range(256)) * 120_000
    client.send("produce", 9, **produce_fields(name, batch_of(value), batch_of(b"other"), partition=0))
    first, _ = client.receive().responses[0].partition_responses
    assert first.error_code == 0, "the checksum was right"
    wait_for(lambda: in_flight(node), lambda used: used == 0, "all memory is given back")
