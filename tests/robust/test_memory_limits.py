"""However much clients ask for, send by halves or leave unread, the node's memory stays within its settings."""

import socket
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from pathlib import Path

import pytest

from support.kio_messages import build, encode
from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import (
    PATIENCE_S,
    ConnectionEnded,
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    produce,
    produce_fields,
)
from support.waiting import wait_for

MB = 1 << 20
# Half of it is for requests, half for replies.
IN_FLIGHT_MB = 16
# What a node may use beyond its settings: sockets, the allocator's reserve, one reply per connection in the making.
SLACK_MB = 40


@pytest.fixture
def node(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(
        settings={
            "performance.max_in_flight_bytes": f"{IN_FLIGHT_MB}MB",
            "performance.max_request_size": "6MB",
            "performance.socket_send_buffer": "64KB",
            "performance.socket_receive_buffer": "64KB",
            "kafka.message.max.bytes": "4000000",
        }
    )


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def resident_mb(node: NodeProcess) -> float:
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * 4096 / MB


def filled_topic(client: RawClient, name: str, megabytes: int) -> str:
    """Relaxed, so that filling it is quick."""
    create_topic(client, name, flush_ms=1000)
    for _ in range(megabytes):
        produce(client, name, batch_of(b"d" * (MB - 1000)))
    return name


def in_flight(node: NodeProcess) -> float:
    return metric(node, "millstream_in_flight_bytes")


def test_readers_that_never_read_cannot_make_the_node_grow(
    node: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(node.listen))
    name = filled_topic(client, new_topic(), 40)
    fetched_partitions(client.call("fetch", 12, **fetch_fields(name, 0, max_bytes=2 * MB)))
    before = resident_mb(node)
    readers = [clients.enter_context(RawClient(node.listen, receive_buffer=4096)) for _ in range(30)]
    for reader in readers:
        for _ in range(5):
            reader.send("fetch", 12, **fetch_fields(name, 0, max_bytes=50 * MB))
    # Others are served while the memory for replies is used up.
    assert produce(client, name, batch_of(b"x")).error_code == 0
    assert client.call("metadata", 12, topics=[{"name": name}]).topics[0].error_code == 0
    wait_for(lambda: in_flight(node), lambda used: used >= IN_FLIGHT_MB * MB / 4, "replies wait to be read")
    starved = fetched_partitions(client.call("fetch", 12, **fetch_fields(name, 0, max_bytes=MB)))
    assert starved[0].error_code == 0
    assert resident_mb(node) < before + IN_FLIGHT_MB + SLACK_MB
    for reader in readers[10:]:
        reader.close()
    # Once the readers read, they get everything they asked for.
    for _ in range(5):
        for reader in readers[:10]:
            (fetched,) = fetched_partitions(reader.receive())
            assert fetched.error_code == 0
    assert fetched_partitions(client.call("fetch", 12, **fetch_fields(name, 0)))[0].records
    for reader in readers:
        reader.close()
    wait_for(lambda: in_flight(node), lambda used: used == 0, "all memory is given back")


def test_replies_held_behind_a_waiting_fetch_count_too_and_make_it_return(
    node: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(node.listen))
    name = filled_topic(client, new_topic(), 8)
    empty = create_topic(client, new_topic())

    def ask_twice(each: RawClient, max_wait_ms: int) -> None:
        each.send("fetch", 12, **fetch_fields(empty, 0, max_wait_ms=max_wait_ms))
        each.send("fetch", 12, **fetch_fields(name, 0, max_bytes=6 * MB))

    def receive_both(each: RawClient) -> bytes:
        assert not fetched_partitions(each.receive())[0].records
        (fetched,) = fetched_partitions(each.receive())
        assert fetched.error_code == 0
        return bytes(fetched.records or b"")

    alone = clients.enter_context(RawClient(node.listen))
    ask_twice(alone, max_wait_ms=3_600_000)
    assert len(receive_both(alone)) > 4 * MB
    before = resident_mb(node)
    held = [clients.enter_context(RawClient(node.listen)) for _ in range(10)]
    for each in held:
        for _ in range(10):
            # Who finds no memory is answered without records, and that makes nobody return early.
            ask_twice(each, max_wait_ms=500)
    assert produce(client, name, batch_of(b"x")).error_code == 0
    assert resident_mb(node) < before + IN_FLIGHT_MB + SLACK_MB
    for each in held:
        for _ in range(10):
            receive_both(each)
        each.close()
    wait_for(lambda: in_flight(node), lambda used: used == 0, "all memory is given back")


def test_small_replies_held_behind_a_waiting_fetch_stop_the_reading(
    node: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(node.listen))
    empty = create_topic(client, new_topic())
    flooding = clients.enter_context(RawClient(node.listen))
    flooding.send("fetch", 12, **fetch_fields(empty, 0, max_wait_ms=60_000))
    flooding.socket.settimeout(0.5)
    asked = b"".join(flooding.expect("metadata", 1, struct.pack(">i", 0)) for _ in range(1000))
    with pytest.raises(TimeoutError):  # noqa: PT012 - it takes many to fill the buffers on the way
        for _ in repeat(None):
            flooding.send_bytes(asked)
    assert metric(node, "millstream_requests_total", api="metadata") < 2000
    assert client.call("metadata", 12, topics=[]).brokers


def test_large_requests_sent_by_halves_wait_for_memory_and_then_proceed(
    node: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(node.listen))
    name = create_topic(client, new_topic(), max_message_bytes=4_000_000)
    before = resident_mb(node)
    body = _produce_body(name, batch_of(b"r" * 3_000_000))
    halves = []
    for _ in range(20):
        each = clients.enter_context(RawClient(node.listen))
        whole = each.expect("produce", 9, body)
        each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        each.socket.settimeout(0.05)
        sent = _send_as_much_as_goes(each, whole[:2_000_000])
        halves.append((each, whole, sent))
    assert sum(1 for _, _, sent in halves if sent < 2_000_000) >= 10, "sockets beyond the budget are not read"
    assert resident_mb(node) < before + IN_FLIGHT_MB + SLACK_MB
    # Requests that need no memory of their own are served meanwhile.
    assert client.call("metadata", 12, topics=[{"name": name}]).topics[0].error_code == 0
    assert produce(client, name, batch_of(b"small")).base_offset == 0
    # Half of the half-senders give up, the others go on: each gets its turn and its answer. On a busy machine some were
    # silent for so long that the node gave them up for those who wait.
    for each, _, _ in halves[::2]:
        each.reset()
    with ThreadPoolExecutor(len(halves)) as pool:
        outcomes = dict(pool.map(_send_the_rest, halves[1::2]))
    given_up = {
        str(line["peer"])
        for line in node.log_entries("connection closed")
        if "others wait for its memory" in str(line["reason"])
    }
    assert {peer for peer, code in outcomes.items() if code is None} <= given_up
    assert {code for code in outcomes.values() if code is not None} == {0}
    wait_for(lambda: in_flight(node), lambda used: used == 0, "all memory is given back")


def _send_the_rest(half: tuple[RawClient, bytes, int]) -> tuple[str, int | None]:
    """Who sent it, and the answer's error code; None where the node had closed the connection."""
    client, whole, sent = half
    peer = "{}:{}".format(*client.socket.getsockname())
    client.socket.settimeout(PATIENCE_S)
    try:
        client.send_bytes(whole[sent:])
        return peer, int(client.receive().responses[0].partition_responses[0].error_code)
    except (ConnectionError, ConnectionEnded):
        return peer, None


def _produce_body(name: str, record: bytes) -> bytes:
    return encode(build("produce", 9, **produce_fields(name, record)))


def _send_as_much_as_goes(client: RawClient, data: bytes) -> int:
    sent = 0
    while sent < len(data):
        try:
            sent += client.socket.send(data[sent : sent + 65_536])
        except TimeoutError:
            break
    return sent


def test_a_request_larger_than_all_memory_for_requests_is_served_alone(
    start_node: Callable[..., NodeProcess], new_topic: Callable[[], str]
) -> None:
    node = start_node(settings={"performance.max_in_flight_bytes": "1MB"})
    with RawClient(node.listen) as client, RawClient(node.listen) as other:
        name = create_topic(client, new_topic())
        for _ in range(3):
            other.send("produce", 9, **produce_fields(name, batch_of(b"x" * 900_000)))
            assert produce(client, name, batch_of(b"x" * 1_000_000)).error_code == 0
            assert other.receive().responses[0].partition_responses[0].error_code == 0
        fetched = client.call("fetch", 12, **fetch_fields(name, 0))
        assert len(fetched_partitions(fetched)[0].records) > 900_000


def test_memory_of_clients_that_vanish_in_every_state_is_given_back(
    node: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(node.listen))
    name = filled_topic(client, new_topic(), 4)
    empty = create_topic(client, new_topic())
    for number in range(60):
        with RawClient(node.listen, receive_buffer=4096) as leaving:
            match number % 6:
                case 0:
                    leaving.send_bytes(struct.pack(">i", 5_000_000) + bytes(100_000))
                case 1:
                    leaving.send("fetch", 12, **fetch_fields(name, 0))
                case 2:
                    leaving.send("fetch", 12, **fetch_fields(empty, 0, max_wait_ms=60_000))
                    leaving.send("fetch", 12, **fetch_fields(name, 0))
                case 3:
                    leaving.send("fetch", 12, **fetch_fields(name, 0))
                    leaving.send("fetch", 12, **fetch_fields(name, 0))
                    leaving.send_bytes(struct.pack(">i", 3_000_000) + bytes(70_000))
                case 4:
                    leaving.send("produce", 9, **produce_fields(name, batch_of(b"x" * 500_000)))
                case _:
                    leaving.send_bytes(b"\0\0")
            if number % 4:
                leaving.reset()
    assert produce(client, name, batch_of(b"x")).error_code == 0
    wait_for(lambda: in_flight(node), lambda used: used == 0, "all memory is given back")
    wait_for(
        lambda: metric(node, "millstream_purgatory_size", kind="fetch"),
        lambda waiting: waiting == 0,
        "nobody waits",
    )
