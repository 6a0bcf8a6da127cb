"""/consume, /ack, /nack and /reject: every group gets every message, and in a group one consumer does."""

import contextlib
import itertools
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from millstream.gateway.bodies import FRAMES
from millstream.protocol.message_frame import decode_frame
from millstream.testing import EmbeddedBroker
from support.sse import Events
from support.waiting import wait_for

_numbers = itertools.count()


@pytest.fixture
def topic(gateway: httpx.Client) -> str:
    name = f"queue-{next(_numbers)}"
    assert gateway.post("/admin/topics", json={"name": name, "partitions": 3}).status_code == 201
    return name


@pytest.fixture
def other(node: EmbeddedBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http_url, timeout=90) as client:
        yield client


def send(gateway: httpx.Client, topic: str, count: int, **query: object) -> list[str]:
    payloads = [f"m{number}" for number in range(count)]
    for payload in payloads:
        params = {"topic": topic, **{name: str(value) for name, value in query.items()}}
        assert gateway.post("/produce", params=params, json={"payload": payload}).status_code == 200
    return payloads


def poll(gateway: httpx.Client, topic: str, group: str, **query: object) -> list[dict[str, Any]]:
    params = {"topic": topic, "group": group, **{name: str(value) for name, value in query.items()}}
    answer = gateway.get("/consume", params=params, headers={"accept": "application/json"})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def poll_for(
    gateway: httpx.Client, topic: str, group: str, count: int, **query: object
) -> list[dict[str, Any]]:
    """An answer has what is there, which may be a part."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        some = poll(gateway, topic, group, **{"wait": 20, **query})
        assert some, f"{len(found)} of {count} came"
        found += some
    assert len(found) == count
    return found


def settle(gateway: httpx.Client, call: str, group: str, **body: object) -> httpx.Response:
    return gateway.post(f"/{call}", params={"group": group}, json=body)


def nothing_is_left(gateway: httpx.Client, topic: str, group: str) -> bool:
    return poll(gateway, topic, group, wait=1) == []


def test_a_stream_has_all_partitions_and_the_contracts_fields(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    sent = send(other, topic, 6)
    with Events(gateway, topic=topic, group="g") as events:
        found = events.take(6)
        assert sorted(each["payload"] for each in found) == sent
        assert {each["partition"] for each in found} == {0, 1, 2}
        assert {*found[0]} >= {
            "id",
            "payload",
            "created_at",
            "topic",
            "partition",
            "offset",
            "delivery_count",
        }
        for each in found:
            query = {"topic": topic, "partition": each["partition"], "group": "g"}
            answer = other.post("/ack", params=query, json={"id": each["id"]})
            assert (answer.status_code, answer.text) == (200, "ok")
        send(other, topic, 1)
        assert events.next()["payload"] == "m0"


def test_lines_are_as_existing_clients_read_them(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    send(other, topic, 1, partition=2)
    with Events(gateway, topic=topic, group="g", partition=2) as events:
        lines = list(itertools.islice(events.lines, 4))
    assert lines[0] == ""
    assert lines[1].startswith(f"id: {topic}:2:0:")
    assert lines[2].startswith('data: {"id":"')
    assert lines[3] == "partition: 2"


def test_who_does_not_wait_gets_what_is_there(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 1)
    found: list[dict[str, Any]] = []
    while not found:  # a busy machine may take longer to ask its queues than it is given
        answer = gateway.get(
            "/consume",
            params={"topic": topic, "group": "g", "wait": 0},
            headers={"accept": "application/json"},
        )
        found = answer.json()["messages"]
    assert len(found) == 1


def test_every_group_gets_every_message(gateway: httpx.Client, topic: str) -> None:
    sent = send(gateway, topic, 5)
    for group in ("one", "two"):
        assert sorted(each["payload"] for each in poll_for(gateway, topic, group, 5)) == sent


def test_in_a_group_every_message_goes_to_one_consumer(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    with (
        httpx.Client(base_url=gateway.base_url, timeout=90) as third,
        Events(gateway, topic=topic, group="g") as one,
        Events(other, topic=topic, group="g") as two,
    ):
        sent = send(third, topic, 20)
        found: list[str] = []

        def read(events: Events) -> None:
            with contextlib.suppress(AssertionError, KeyError, httpx.HTTPError):
                while True:
                    found.append(events.next()["payload"])

        threads = [threading.Thread(target=read, args=(each,), daemon=True) for each in (one, two)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(found), lambda seen: seen >= 20, "all messages")
        assert sorted(found) == sorted(sent)
        assert third.delete(f"/admin/topics/{topic}").status_code == 204  # ends the streams
        for thread in threads:
            thread.join(90)
            assert not thread.is_alive()


def test_a_key_or_a_partition_narrows_a_stream(gateway: httpx.Client, topic: str) -> None:
    gateway.post("/produce", params={"topic": topic, "key": "user-1"}, content=b"mine")
    place = gateway.post("/produce", params={"topic": topic, "key": "user-1"}, content=b"mine").json()[
        "partition"
    ]
    gateway.post("/produce", params={"topic": topic, "partition": (place + 1) % 3}, content=b"not mine")
    assert [each["payload"] for each in poll_for(gateway, topic, "k", 2, key="user-1")] == ["mine", "mine"]
    assert [each["payload"] for each in poll(gateway, topic, "p", partition=(place + 1) % 3)] == ["not mine"]


def test_what_was_acknowledged_never_comes_again(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 10)
    found = poll_for(gateway, topic, "g", 10)
    assert settle(gateway, "ack", "g", ids=[each["id"] for each in found]).text == "ok"
    assert nothing_is_left(gateway, topic, "g")
    again = settle(gateway, "ack", "g", id=found[0]["id"])
    assert again.status_code in {200, 400}, "below the start of the queue it is done, above it is unknown"


def test_what_is_returned_comes_again_and_counts(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 1)
    (first,) = poll(gateway, topic, "g")
    assert settle(gateway, "nack", "g", id=first["id"]).text == "ok"
    (second,) = poll(gateway, topic, "g")
    assert (first["delivery_count"], second["delivery_count"]) == (1, 2)
    assert settle(gateway, "ack", "g", id=second["id"]).text == "ok"


def test_what_is_rejected_does_not(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 1)
    (first,) = poll(gateway, topic, "g")
    assert settle(gateway, "reject", "g", id=first["id"], reason="cannot be read").text == "ok"
    assert nothing_is_left(gateway, topic, "g")


def test_messages_of_a_stream_that_ended_go_to_another(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    sent = send(other, topic, 5)
    with Events(gateway, topic=topic, group="g") as events:
        events.take(5)
    again = poll_for(other, topic, "g", 5)
    assert sorted(each["payload"] for each in again) == sent
    assert {each["delivery_count"] for each in again} == {2}


def test_what_never_reached_a_consumer_is_no_delivery(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    """A stream with one permit gets one message; the gateway had more in its hands and gives them back uncounted."""
    send(other, topic, 30, partition=0)
    for _ in range(8):
        with Events(gateway, topic=topic, group="g", partition=0, permits=1) as events:
            events.next()
    found = poll_for(other, topic, "g", 30, partition=0)
    assert {each["delivery_count"] for each in found if each["offset"] > 10} == {1}


def test_a_consumer_holds_no_more_than_its_permits(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    send(other, topic, 5, partition=0)
    with Events(gateway, topic=topic, group="g", permits=2) as events:
        held = events.take(2)
        poll_for(other, topic, "g", 3)  # the others are free
        for each in held:
            assert settle(other, "ack", "g", id=each["id"]).text == "ok"
        send(other, topic, 1)
        assert events.next()["payload"] == "m0"


@pytest.fixture
def slow_to_release() -> Iterator[httpx.Client]:
    """A gateway that keeps what a stream had for a client that comes back, however long that takes."""
    with (
        EmbeddedBroker(topics={"kept": 1}, settings={"proxy.release_delay": "10m"}) as broker,
        httpx.Client(base_url=broker.http_url, timeout=90) as client,
    ):
        yield client


def test_a_stream_resumes_behind_the_last_event_that_its_client_saw(slow_to_release: httpx.Client) -> None:
    client = slow_to_release
    send(client, "kept", 3)
    with Events(client, topic="kept", group="g") as events:
        found = events.take(3)
    wait_for(
        lambda: client.get("/metrics").text, lambda text: "proxy_streams 0.0" in text, "the stream has ended"
    )
    with Events(client, {"last-event-id": found[1]["id"]}, topic="kept", group="g") as events:
        assert events.next()["payload"] == "m2"
        for each in found[:2]:
            assert settle(client, "ack", "g", id=each["id"]).text == "ok", "its client has these"


def test_of_a_list_only_what_is_not_the_consumers_is_refused(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 5, partition=0)
    ids = [each["id"] for each in poll_for(gateway, topic, "g", 5, partition=0)]
    assert settle(gateway, "nack", "g", id=ids[3], delay_ms=60_000).text == "ok"
    refused = settle(gateway, "ack", "g", ids=[*reversed(ids)])
    assert (refused.status_code, refused.json()["failed"]) == (400, [ids[3]])
    (row,) = gateway.get(f"/admin/queues?group=g&topic={topic}").json()["queues"]
    assert (row["accepted"], row["in_flight"], row["depth"]) == (4, 0, 1)


def test_acknowledgements_at_once_are_all_answered(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 40)
    found = poll_for(gateway, topic, "g", 40)
    answers: list[str] = []

    def ack(some: list[dict[str, Any]]) -> None:
        with httpx.Client(base_url=gateway.base_url, timeout=90) as client:
            answers.extend(settle(client, "ack", "g", id=each["id"]).text for each in some)

    threads = [threading.Thread(target=ack, args=(found[start::8],)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert answers == ["ok"] * 40
    assert nothing_is_left(gateway, topic, "g")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"5",
        b"{}",
        b'{"id": 5}',
        b'{"ids": []}',
        b'{"id": "a", "ids": ["b"]}',
        b"\xff",
        b'{"id": "\xff"}',
    ],
)
def test_a_body_without_ids_is_bad(gateway: httpx.Client, body: bytes) -> None:
    answer = gateway.post("/ack?group=g", content=body)
    assert (answer.status_code, answer.text) == (400, "bad body")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"id": "x", "delay_ms": -1}, "delay_ms is from 0"),
        ({"id": "x", "reason": "x" * 2_000}, "a reason has at most"),
        ({"ids": ["x"] * 1_001}, "at most 1000 ids"),
    ],
)
def test_a_body_beyond_its_limits_is_told_which(
    gateway: httpx.Client, body: dict[str, Any], said: str
) -> None:
    answer = gateway.post("/nack?group=g", json=body)
    assert (answer.status_code, said in answer.text) == (400, True)


def test_ids_that_are_nobodys_or_anothers_are_refused(gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 2, partition=0)
    first, second = poll_for(gateway, topic, "g", 2, partition=0)
    bare = ":".join(first["id"].split(":")[:3])
    member, stream, incarnation = first["id"].split(":")[3:]
    wrong: list[tuple[str, str]] = [
        ("other", first["id"]),
        ("g", bare),
        ("g", f"{bare}:http-0123456789abcdef:1"),
        ("g", f"{topic}:0:999:{member}:{stream}"),
        ("g", f"{bare}:{member}:{stream}:{int(incarnation, 16) ^ 1:08x}"),
        ("g", f"{topic}:7:0:{member}:{stream}"),
        ("g", f"no-such-topic:0:0:{member}:{stream}"),
        ("g", "nonsense"),
        ("g", "../../etc/passwd"),
        ("g", "x" * 10_000),
    ]
    for group, text in wrong:
        answer = settle(gateway, "ack", group, id=text)
        assert (answer.status_code, answer.text) == (400, "ack failed (unknown id or wrong group)"), text
    mismatched = gateway.post(f"/ack?group=g&topic={topic}&partition=1", json={"id": first["id"]})
    assert mismatched.status_code == 400
    several = settle(gateway, "ack", "g", ids=[first["id"], "nonsense"])
    assert (several.status_code, several.json()["failed"]) == (400, ["nonsense"])
    assert settle(gateway, "ack", "g", id=second["id"]).text == "ok"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("group=g", "topic required"),
        ("topic=telemetry", "group required"),
        ("topic=telemetry&group=g&partition=x", "invalid partition"),
        ("topic=telemetry&group=g&partition=3", "invalid partition"),
        ("topic=a%20b&group=g", "unknown topic"),
        ("topic=telemetry&group=%0d%0a", "the group's name is too long or cannot be printed"),
        ("topic=telemetry&group=g&permits=0", "permits must be a whole number from 1 to 100000"),
        ("topic=telemetry&group=g&wait=x", "wait must be a whole number from 0 to 55"),
    ],
)
def test_the_contracts_refusals(gateway: httpx.Client, query: str, text: str) -> None:
    answer = gateway.get(f"/consume?{query}")
    assert (answer.status_code, answer.text) == (400, text)


def test_curl_reads_a_stream(node: EmbeddedBroker, gateway: httpx.Client, topic: str) -> None:
    send(gateway, topic, 1)
    url = f"{node.http_url}/consume?topic={topic}&group=curl"
    with subprocess.Popen(["curl", "-sN", url], stdout=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        lines = [curl.stdout.readline() for _ in range(4)]
        curl.kill()
    assert lines[3].startswith(b'data: {"id":"')


def test_frames_can_be_taken_and_acknowledged_by_the_id_that_they_carry(
    gateway: httpx.Client, topic: str
) -> None:
    gateway.post("/produce", params={"topic": topic, "key": "k"}, content=b"\x00\xff")
    answer = gateway.get("/consume", params={"topic": topic, "group": "g"}, headers={"accept": FRAMES})
    frame = decode_frame(answer.content)
    headers = dict(frame.headers)
    assert (frame.key, frame.value, headers["millstream.delivery_count"]) == (b"k", b"\x00\xff", b"1")
    named = headers["millstream.id"]
    assert named is not None
    assert settle(gateway, "ack", "g", id=named.decode()).text == "ok"


def test_a_stream_follows_a_topic_that_grows(gateway: httpx.Client, other: httpx.Client, topic: str) -> None:
    with Events(gateway, topic=topic, group="g") as events:
        other.post(f"/admin/topics/{topic}/partitions", json={"count": 5})
        send(other, topic, 1, partition=4)
        assert events.next()["partition"] == 4


def test_a_deleted_topic_ends_its_streams_with_an_error(
    gateway: httpx.Client, other: httpx.Client, topic: str
) -> None:
    with Events(gateway, topic=topic, group="g") as events:
        other.delete(f"/admin/topics/{topic}")
        rest = [line for line in events.lines if line]
    assert rest[-2:] == ["event: error", 'data: {"error":"unknown topic"}']


def test_a_payload_of_a_mebibyte_is_delivered(gateway: httpx.Client, topic: str) -> None:
    payload = "x" * (1 << 20)
    gateway.post("/produce", params={"topic": topic}, json={"payload": payload})
    with Events(gateway, topic=topic, group="g") as events:
        assert events.next()["payload"] == payload


def test_a_client_that_does_not_read_gets_no_more_than_it_may_hold(
    node: EmbeddedBroker, gateway: httpx.Client, topic: str
) -> None:
    """Its messages are locked for it, bounded by its permits; the rest goes to those who read."""
    body = [{"payload": "x" * 1_000} for _ in range(1_500)]
    gateway.post("/produce", params={"topic": topic, "partition": 0}, json=body)
    address = urlsplit(node.http_url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as deaf:
        deaf.sendall(f"GET /consume?topic={topic}&group=g HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        deaf.recv(100)
        found = 0
        while found < 1_000:
            some = poll(gateway, topic, "g", limit=1_000, wait=20)
            assert some, f"{found} so far"
            settle(gateway, "ack", "g", ids=[each["id"] for each in some])
            found += len(some)
