"""How many connections there may be, and how long one may be silent."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    frame,
    produce,
)
from support.waiting import wait_for

IDLE_MS = 3000


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def is_served(client: RawClient) -> bool:
    return bool(client.call("api_versions", 3).api_keys)


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_connections_beyond_the_limit_are_closed_with_a_line_and_room_is_made_by_leaving(
    start_node: Callable[..., NodeProcess], clients: ExitStack, setting: str
) -> None:
    node = start_node(settings={f"performance.{setting}": "5"})
    inside = [clients.enter_context(RawClient(node.listen)) for _ in range(5)]
    assert all(map(is_served, inside))
    for number in range(1, 4):
        with RawClient(node.listen) as refused:
            assert refused.is_closed_by_broker()
        (line,) = node.log_entries("connection rejected")[number - 1 :]
        assert setting.replace("_", ".") in str(line["reason"])
    assert all(map(is_served, inside))
    assert metric(node, "millstream_connections_rejected_total", reason=setting) == 3
    inside[0].close()
    inside[1].reset()
    wait_for(lambda: metric(node, "millstream_connections"), lambda count: count == 3, "they have left")
    assert is_served(clients.enter_context(RawClient(node.listen)))
    assert is_served(clients.enter_context(RawClient(node.listen)))
    assert clients.enter_context(RawClient(node.listen)).is_closed_by_broker()


@pytest.fixture
def impatient(start_node: Callable[..., NodeProcess]) -> NodeProcess:
    return start_node(
        settings={"performance.idle_timeout": f"{IDLE_MS}ms", "performance.socket_send_buffer": "64KB"}
    )


def test_a_silent_connection_is_closed_whatever_it_began(impatient: NodeProcess, clients: ExitStack) -> None:
    silent = {}
    for what, sent in {
        "nothing": b"",
        "one byte": b"\0",
        "half a request": frame(b"x" * 100)[:50],
        "a part of a large request": (50_000_000).to_bytes(4) + bytes(200_000),
    }.items():
        client = clients.enter_context(RawClient(impatient.listen))
        silent["{}:{}".format(*client.socket.getsockname())] = what, client
        client.send_bytes(sent)
    for what, client in silent.values():
        assert client.is_closed_by_broker(), what
    reasons = {str(line["peer"]): str(line["reason"]) for line in impatient.log_entries("connection closed")}
    assert {peer for peer, reason in reasons.items() if "connections.max.idle.ms" in reason} == {*silent}
    wait_for(
        lambda: metric(impatient, "millstream_in_flight_bytes"),
        lambda used: used == 0,
        "memory is given back",
    )


def test_a_connection_that_asks_now_and_then_stays(
    start_node: Callable[..., NodeProcess], clients: ExitStack
) -> None:
    node = start_node(settings={"performance.idle_timeout": "3s"})
    busy = clients.enter_context(RawClient(node.listen))
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        assert is_served(busy)
        time.sleep(0.1)
    assert node.log_entries("connection closed") == []


def test_a_connection_that_waits_for_its_fetch_is_not_idle(
    impatient: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    """And its patience begins again with the reply, as with everything that moves."""
    waiting = clients.enter_context(RawClient(impatient.listen))
    name = create_topic(waiting, new_topic())
    started = time.monotonic()
    waiting.send("fetch", 12, **fetch_fields(name, 0, max_wait_ms=3 * IDLE_MS))
    assert fetched_partitions(waiting.receive())[0].error_code == 0
    assert waiting.is_closed_by_broker()
    assert time.monotonic() - started >= 4 * IDLE_MS / 1000


def test_a_reader_that_takes_nothing_is_closed(
    impatient: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    with RawClient(impatient.listen) as producer:
        name = create_topic(producer, new_topic(), flush_ms=1000)
        for _ in range(8):
            produce(producer, name, batch_of(b"x" * 1_000_000))
    stuck = clients.enter_context(RawClient(impatient.listen, receive_buffer=4096))
    stuck.send("fetch", 12, **fetch_fields(name, 0))
    stuck.send("fetch", 12, **fetch_fields(name, 0, max_wait_ms=60_000))
    wait_for(
        lambda: impatient.log_entries("connection closed"), lambda lines: len(lines) >= 1, "it is closed"
    )
    wait_for(
        lambda: metric(impatient, "millstream_in_flight_bytes"),
        lambda used: used == 0,
        "memory is given back",
    )
    wait_for(lambda: metric(impatient, "millstream_connections"), lambda count: count == 0, "nobody is left")


def test_a_client_that_stops_reading_after_bad_input_does_not_stay(
    impatient: NodeProcess, clients: ExitStack, new_topic: Callable[[], str]
) -> None:
    client = clients.enter_context(RawClient(impatient.listen, receive_buffer=4096))
    name = create_topic(client, new_topic(), flush_ms=1000)
    for _ in range(4):
        produce(client, name, batch_of(b"x" * 1_000_000))
    client.send("fetch", 12, **fetch_fields(name, 4, max_wait_ms=60_000))
    client.send("fetch", 12, **fetch_fields(name, 0, max_bytes=100_000))
    client.send_bytes(b"\xff" * 10)
    wait_for(lambda: metric(impatient, "millstream_connections"), lambda count: count == 0, "it is gone")
    assert len(impatient.log_entries("connection closed")) == 1
