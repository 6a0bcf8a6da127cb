"""The largest request of a client: refused beyond its API's limit, and else answered while others are served."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.protocol.api import APIS
from millstream.protocol.limits import LIMITS
from support.kio_messages import build, decode, encode
from support.metrics import metric
from support.node import NodeProcess
from support.raw_client import (
    RawClient,
    batch_of,
    create_topic,
    fetch_fields,
    fetched_partitions,
    frame,
    milliseconds,
    produce,
    produce_fields,
    request_header,
)

INVALID_REQUEST = 42
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.fixture(autouse=True)
def node_stays_well(broker: NodeProcess) -> Iterator[None]:
    failures = len(broker.log_entries("request failed")) + len(broker.log_entries("task failed"))
    yield
    with RawClient(broker.listen) as client:
        assert client.call("metadata", 12, topics=[]).brokers
    assert len(broker.log_entries("request failed")) + len(broker.log_entries("task failed")) == failures


def refusals(broker: NodeProcess, client: RawClient) -> list[str]:
    host, port = client.socket.getsockname()
    lines = broker.log_entries("connection closed")
    return [str(line["reason"]) for line in lines if line.get("peer") == f"{host}:{port}"]


def turns(broker: NodeProcess) -> float:
    return metric(broker, "millstream_long_work_slices_total")


def strings(count: int) -> bytes:
    return struct.pack(">i", count) + b"\0\1a" * count


def in_one_topic(count: int, partition: bytes) -> bytes:
    return struct.pack(">i", 1) + b"\0\1t" + struct.pack(">i", count) + partition * count


# By API: a version, and a body of the old encoding with so many elements.
MANY: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "metadata": (4, lambda count: strings(count) + b"\0"),
    "describe_groups": (2, strings),
    "delete_groups": (1, strings),
    "delete_topics": (1, lambda count: strings(count) + bytes(4)),
    "list_offsets": (1, lambda count: bytes(4) + in_one_topic(count, bytes(12))),
    "delete_records": (0, lambda count: in_one_topic(count, bytes(12)) + bytes(4)),
    "offset_for_leader_epoch": (2, lambda count: in_one_topic(count, bytes(12))),
    "produce": (7, lambda count: b"\xff\xff\xff\xff" + bytes(4) + in_one_topic(count, bytes(8))),
    "create_topics": (2, lambda c: struct.pack(">i", c) + (b"\0\1 " + bytes(14)) * c + bytes(5)),
    "fetch": (4, lambda count: bytes(17) + in_one_topic(count, bytes(16))),
    "offset_commit": (2, lambda c: b"\0\1g" + bytes(14) + in_one_topic(c, bytes(14))),
}


@pytest.mark.parametrize("name", MANY)
def test_a_request_beyond_the_limit_ends_the_connection_with_a_line_that_names_it(
    broker: NodeProcess, client: RawClient, name: str
) -> None:
    version, body = MANY[name]
    limit = LIMITS[name]
    most = min(limit.elements, *limit.arrays.values(), limit.elements)
    client.send_bytes(client.expect(name, version, body(most + 1)))
    assert client.is_closed_by_broker()
    (reason,) = refusals(broker, client)
    assert name in reason
    assert str(most) in reason


def refused(client: RawClient, name: str, version: int, body: bytes) -> Any:
    client.send_bytes(client.expect(name, version, body))
    return client.receive()


def test_where_the_reply_has_a_place_for_it_the_refusal_is_an_error(client: RawClient) -> None:
    head = bytes(17) + bytes(8)
    fetch = head + in_one_topic(LIMITS["fetch"].elements, bytes(24)) + bytes(4)
    assert refused(client, "fetch", 7, fetch).error_code == INVALID_REQUEST
    join = b"\0\1g" + bytes(8) + b"\0\0" + b"\0\1c" + struct.pack(">i", 101) + b"\0\1p\0\0\0\0" * 101
    assert refused(client, "join_group", 1, join).error_code == INVALID_REQUEST
    offsets = b"\0\1g" + in_one_topic(LIMITS["offset_fetch"].elements, bytes(4))
    assert refused(client, "offset_fetch", 5, offsets).error_code == INVALID_REQUEST
    wanted = encode(build("metadata", 13, topics=[{"name": ""}] * 50_001))
    assert refused(client, "metadata", 13, wanted).error_code == INVALID_REQUEST
    assert client.call("metadata", 12, topics=[]).brokers


@pytest.mark.parametrize("name", ["heartbeat", "metadata", "join_group", "list_offsets"])
def test_the_size_of_a_request_is_refused_before_it_is_read(
    broker: NodeProcess, client: RawClient, name: str
) -> None:
    size = LIMITS[name].size_bytes + 1
    api = next(api for api in APIS.values() if api.name == name)
    client.send_bytes(struct.pack(">i", size) + request_header(api, api.min_version, 1))
    assert client.is_closed_by_broker()
    (reason,) = refusals(broker, client)
    assert f"a request {name} of {size} bytes" in reason


def test_every_api_has_a_limit() -> None:
    assert LIMITS.keys() >= {api.name for api in APIS.values()}


def test_thousands_of_partitions_in_a_fetch_are_answered_in_turns(
    broker: NodeProcess, client: RawClient, topic: str
) -> None:
    produce(client, topic, batch_of(b"here"))
    before = turns(broker)
    wanted = fetch_fields(topic, 0)
    (partition,) = wanted["topics"][0]["partitions"]
    wanted["topics"][0]["partitions"] = [partition, *({**partition, "partition": 7},) * 6_000]
    answers = fetched_partitions(client.call("fetch", 12, **wanted))
    assert [each.error_code for each in answers] == [0] + [UNKNOWN_TOPIC_OR_PARTITION] * 6_000
    assert answers[0].records
    assert turns(broker) - before >= 30


def test_a_large_fetch_waits_for_data_like_a_small_one(
    connect: Callable[[], RawClient], client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=600)
    reader = connect()
    reader.send("fetch", 12, **fetch_fields(name, *[0] * 600, max_wait_ms=60_000))
    for _ in range(3):
        assert not reader.has_reply(within_s=0.05)
    produce(client, name, batch_of(b"new"), partition=550)
    found = {each.partition_index for each in fetched_partitions(reader.receive()) if each.records}
    assert found == {550}


def test_sessions_of_many_partitions_tell_what_is_new(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=500)
    first = client.call("fetch", 12, **fetch_fields(name, *[0] * 500, session_id=0, session_epoch=0))
    assert first.session_id > 0
    assert len(fetched_partitions(first)) == 500
    produce(client, name, batch_of(b"new"), partition=400)
    second = client.call(
        "fetch", 12, **{**fetch_fields(name), "topics": []}, session_id=first.session_id, session_epoch=1
    )
    assert [each.partition_index for each in fetched_partitions(second)] == [400]


def test_offsets_of_thousands_of_partitions_come_in_the_order_asked(
    broker: NodeProcess, client: RawClient, new_topic: Callable[[], str]
) -> None:
    names = [create_topic(client, new_topic(), partitions=300) for _ in range(2)]
    for name in names:
        produce(client, name, batch_of(b"a", b"b"), partition=299)
    before = turns(broker)
    topics = [
        {"name": name, "partitions": [{"partition_index": i, "timestamp": -1} for i in range(300)]}
        for name in names
    ]
    reply = client.call("list_offsets", 6, topics=topics)
    assert [topic.name for topic in reply.topics] == names
    for topic in reply.topics:
        assert [each.partition_index for each in topic.partitions] == list(range(300))
        assert [each.offset for each in topic.partitions] == [0] * 299 + [2]
    assert turns(broker) - before >= 3


def test_metadata_of_thousands_of_topics_is_complete(
    broker: NodeProcess, client: RawClient, topic: str
) -> None:
    before = turns(broker)
    wanted = [{"name": f"none-{number}"} for number in range(3000)]
    wanted[1500] = {"name": topic}
    reply = client.call("metadata", 12, topics=wanted, allow_auto_topic_creation=False)
    assert [each.name for each in reply.topics] == [each["name"] for each in wanted]
    assert [each.error_code for each in reply.topics].count(0) == 1
    assert len(reply.topics[1500].partitions) == 1
    assert turns(broker) - before >= 15


def test_metadata_of_all_topics_with_many_partitions_is_complete(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=2100)
    reply = client.call("metadata", 12, topics=None)
    (found,) = [each for each in reply.topics if each.name == name]
    assert [each.partition_index for each in found.partitions] == list(range(2100))
    assert all(each.leader_id >= 0 for each in found.partitions)


def test_what_is_named_again_and_again_is_answered_once(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    """A few bytes each would ask for the same long answer."""
    name = create_topic(client, new_topic(), partitions=300)
    (topic,) = client.call("metadata", 12, topics=[{"name": name}] * 9000).topics
    assert len(topic.partitions) == 300
    by_id = {"name": None, "topic_id": topic.topic_id}
    assert len(client.call("metadata", 12, topics=[by_id] * 9000).topics) == 1
    groups = ["again", "other", *["again"] * 9000]
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=["again"])
    found = client.call("find_coordinator", 4, key_type=0, coordinator_keys=groups)
    assert [each.key for each in found.coordinators] == ["again", "other"]
    for api, version, asked in (
        ("describe_groups", 5, {"groups": groups}),
        ("consumer_group_describe", 1, {"group_ids": groups}),
        ("share_group_describe", 1, {"group_ids": groups}),
    ):
        assert [each.group_id for each in client.call(api, version, **asked).groups] == ["again", "other"]
    all_of = [{"group_id": each, "topics": None} for each in groups]
    assert [each.group_id for each in client.call("offset_fetch", 8, groups=all_of).groups] == [
        "again",
        "other",
    ]
    some_of = {"group_id": "again", "topics": [{"name": name, "partition_indexes": [0]}]}
    answered = client.call("offset_fetch", 8, groups=[some_of, some_of]).groups
    assert len(answered) == 2, "what costs no more than it was to send is answered as it was sent"


def test_all_offsets_of_each_group_are_read_in_a_turn_of_their_own(
    broker: NodeProcess, client: RawClient
) -> None:
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=["turns-0"])
    wanted = [{"group_id": f"turns-{number}", "topics": None} for number in range(20)]
    before = turns(broker)
    assert len(client.call("offset_fetch", 8, groups=wanted).groups) == 20
    assert turns(broker) - before >= 20


def test_a_thousand_groups_are_described_and_found(broker: NodeProcess, client: RawClient) -> None:
    groups = [f"group-{number}" for number in range(1000)]
    found = client.call("find_coordinator", 4, key_type=0, coordinator_keys=groups)
    assert [each.key for each in found.coordinators] == groups
    before = turns(broker)
    described = client.call("describe_groups", 5, groups=groups)
    assert [each.group_id for each in described.groups] == groups
    offsets = client.call("offset_fetch", 8, groups=[{"group_id": each, "topics": None} for each in groups])
    assert [each.group_id for each in offsets.groups] == groups
    assert turns(broker) - before >= 10


def test_offsets_of_one_group_with_many_partitions_are_one_answer(
    client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=500)
    client.call("find_coordinator", 4, key_type=0, coordinator_keys=["many"])
    commit = {
        "group_id": "many",
        "generation_id_or_member_epoch": -1,
        "topics": [
            {"name": name, "partitions": [{"partition_index": i, "committed_offset": i} for i in range(500)]}
        ],
    }
    client.call("offset_commit", 8, **commit)
    wanted = [{"group_id": "many", "topics": [{"name": name, "partition_indexes": list(range(500))}]}]
    (group,) = client.call("offset_fetch", 8, groups=wanted).groups
    (found,) = group.topics
    assert [(each.partition_index, each.committed_offset) for each in found.partitions] == [
        (i, i) for i in range(500)
    ]


def test_a_produce_of_many_partitions_is_appended_in_turns_and_answered_once(
    broker: NodeProcess, client: RawClient, new_topic: Callable[[], str]
) -> None:
    name = create_topic(client, new_topic(), partitions=450)
    before = turns(broker)
    client.send("produce", 9, **produce_fields(name, *[batch_of(b"x")] * 451))
    client.send("produce", 9, **produce_fields(name, batch_of(b"after")))
    outcomes = client.receive().responses[0].partition_responses
    assert [each.index for each in outcomes] == list(range(451))
    assert [each.error_code for each in outcomes] == [0] * 450 + [UNKNOWN_TOPIC_OR_PARTITION]
    assert client.receive().responses[0].partition_responses[0].base_offset == 1
    assert turns(broker) - before >= 3


def test_bad_names_by_the_thousand_are_each_refused(client: RawClient) -> None:
    bad = [{"name": f"bad name {n}", "num_partitions": 1, "replication_factor": 1} for n in range(3000)]
    reply = client.call("create_topics", 7, topics=[*bad, bad[7]], timeout=milliseconds(20_000))
    assert len(reply.topics) == 3000
    assert {each.error_code for each in reply.topics} == {17, INVALID_REQUEST}
    names = [{"name": f"none-{number}"} for number in range(2000)]
    gone = client.call("delete_topics", 6, topics=names, timeout=milliseconds(20_000))
    assert [each.error_code for each in gone.responses] == [UNKNOWN_TOPIC_OR_PARTITION] * 2000


def test_many_small_requests_in_one_piece_are_answered_in_order(client: RawClient) -> None:
    """They are handled for a moment, then others have a turn; the rest is not lost."""
    topics = [{"name": f"none-{number}"} for number in range(150)]
    names = encode(build("metadata", 4, topics=topics, allow_auto_topic_creation=False))
    client.send_bytes(b"".join(client.expect("metadata", 4, names) for _ in range(200)))
    for _ in range(200):
        assert len(client.receive().topics) == 150


def test_a_large_request_that_is_malformed_ends_the_connection(
    broker: NodeProcess, client: RawClient
) -> None:
    api = next(api for api in APIS.values() if api.name == "describe_groups")
    client.send_bytes(frame(request_header(api, 2, 1) + struct.pack(">i", 3) + b"\x7f\xff" + bytes(20_000)))
    assert client.is_closed_by_broker()
    assert len(refusals(broker, client)) == 1


def test_decode_is_of_the_right_kind() -> None:
    """The table of bodies above is read as what it means to be."""
    for name, (version, body) in MANY.items():
        assert decode(name, version, "request", body(2)) is not None
