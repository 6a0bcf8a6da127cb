"""The files that clients' messages end up in, as `millstream log dump` shows them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.kinds import EVERY_CLIENT, Clients
from support.clients.message import Message
from support.node import NodeProcess
from support.stored_batches import stored_batches

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def dump(file: Path, *options: str) -> list[dict[str, Any]]:
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "log", "dump", str(file), "--json", *options],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_a_dump_shows_what_a_client_wrote(
    clients: Clients, broker: NodeProcess, topic: str, writer: str
) -> None:
    for codec in CODECS:
        messages = [Message(b"some text " * 20, b"key", (("codec", codec.encode()),)) for _ in range(10)]
        clients[writer].write(topic, messages, codec=codec)
    rows = dump(broker.partition_dir(topic) / f"{0:020}.log", "--records")
    records = [row for row in rows if row["kind"] == "record"]
    assert [row["offset"] for row in records] == list(range(50))
    assert {(row["key"], row["value"]) for row in records} == {("key", "some text " * 20)}
    assert [row["headers"] for row in records] == [[["codec", codec]] for codec in CODECS for _ in range(10)]


def test_every_kind_of_file_is_shown(
    clients: Clients, admin: AdminClient, broker: NodeProcess, topic_with: Callable[..., str]
) -> None:
    topic = topic_with(segment_bytes=1500, index_interval_bytes=100)
    for number in range(20):
        clients.aiokafka.write(topic, [Message(b"x" * 300, timestamp_ms=1000 + number)])
    clients.kafka_python.write(topic, [Message(b"by an idempotent producer")])
    clients.kafka_python.write(topic, [Message(b"x" * 1500)])
    directory = broker.partition_dir(topic)
    assert [batch.base_offset for batch in stored_batches(directory)] == list(range(22))
    assert [int(file.stem) for file in sorted(directory.glob("*.log"))] == [0, 4, 8, 12, 16, 20, 21]
    index = dump(directory / f"{4:020}.index")
    assert [row["kind"] for row in index] == ["index"] * 3
    positions = {row["base_offset"]: row["position"] for row in dump(directory / f"{4:020}.log")}
    assert all(positions[row["offset"]] == row["position"] for row in index)
    times = dump(directory / f"{4:020}.timeindex")
    assert (times[-1]["timestamp"], times[-1]["offset"]) == (1007, 7)
    (producer,) = dump(directory / f"{21:020}.snapshot")
    assert (producer["last_sequence"], producer["last_offset"]) == (0, 20)
    (epoch,) = dump(directory / "leader-epoch-checkpoint")
    assert (epoch["epoch"], epoch["start_offset"]) == (0, 0)


def test_a_crash_starts_a_new_leader_epoch_that_clients_see(start_node: Callable[..., NodeProcess]) -> None:
    node = start_node()
    for restart in (node.crash_and_restart, node.restart, node.crash_and_restart, None):
        with Clients(node.bootstrap) as clients:
            clients.confluent.write("topic", [Message(b"v")])
        if restart is not None:
            restart()
    assert [batch.leader_epoch for batch in stored_batches(node.partition_dir("topic"))] == [0, 1, 1, 2]
    epochs = dump(node.partition_dir("topic") / "leader-epoch-checkpoint")
    assert [(row["epoch"], row["start_offset"]) for row in epochs] == [(0, 0), (1, 1), (2, 3)]
    with Clients(node.bootstrap) as clients:
        assert [each.offset for each in clients.confluent.read("topic")] == [0, 1, 2, 3]
