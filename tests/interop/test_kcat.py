"""kcat as people use it on a command line: metadata, whole topics, places counted from the end, ranges of time."""

import json
from collections.abc import Callable

from support.clients.kinds import Clients
from support.clients.message import Message
from support.node import NodeProcess

QUICKLY = ("-X", "fetch.wait.max.ms=20")


def test_metadata_names_the_node_and_every_partition(
    clients: Clients, broker: NodeProcess, topic_with: Callable[..., str]
) -> None:
    topic = topic_with(partitions=3)
    listed = json.loads(clients.kcat.run("-L", "-J", "-t", topic).stdout)
    assert [(each["id"], each["name"]) for each in listed["brokers"]] == [(1, broker.bootstrap)]
    (described,) = listed["topics"]
    assert described["topic"] == topic
    assert [
        (each["partition"], each["leader"], each["replicas"], each["isrs"])
        for each in described["partitions"]
    ] == [(partition, 1, [{"id": 1}], [{"id": 1}]) for partition in range(3)]


def test_lines_spread_over_partitions_and_come_back(clients: Clients, topic_with: Callable[..., str]) -> None:
    topic = topic_with(partitions=3)
    lines = [b"line %d" % number for number in range(300)]
    written = clients.kcat.run("-P", "-t", topic, "-X", "linger.ms=0", stdin=b"\n".join(lines))
    assert written.returncode == 0, written.stderr.decode()
    read = clients.kcat.run("-C", "-e", "-q", "-t", topic, "-o", "beginning", *QUICKLY)
    assert sorted(read.stdout.splitlines()) == sorted(lines)


def test_json_output_tells_where_a_message_is(clients: Clients, topic: str) -> None:
    clients.confluent.write(topic, [Message(b"value", b"key", (("h", b"1"),), timestamp_ms=1234)])
    output = clients.kcat.run("-C", "-e", "-q", "-J", "-t", topic, "-o", "beginning", *QUICKLY).stdout
    message = json.loads(output)
    assert message["topic"] == topic
    assert (message["partition"], message["offset"], message["tstype"], message["ts"]) == (
        0,
        0,
        "create",
        1234,
    )
    assert (message["key"], message["payload"], message["headers"]) == ("key", "value", ["h", "1"])


def test_places_from_the_end_and_ranges_of_time(clients: Clients, topic: str) -> None:
    clients.confluent.write(topic, [Message(b"%d" % n, timestamp_ms=1000 * (n + 1)) for n in range(10)])

    def read(*where: str) -> list[bytes]:
        result = clients.kcat.run("-C", "-e", "-q", "-t", topic, *where, *QUICKLY)
        assert result.returncode == 0, result.stderr.decode()
        return result.stdout.split()

    assert read("-o", "-3") == [b"7", b"8", b"9"]
    assert read("-o", "end") == []
    assert read("-o", "4", "-c", "2") == [b"4", b"5"]
    assert read("-o", "s@3500") == [b"3", b"4", b"5", b"6", b"7", b"8", b"9"]
    assert read("-o", "s@3500", "-o", "e@6000") == [b"3", b"4"]
