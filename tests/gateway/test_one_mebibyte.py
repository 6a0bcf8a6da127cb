"""A payload of 1 MiB passes every door in and every door out, and the Python client, with no setting changed."""

import struct
import threading
from collections.abc import Callable, Iterator

import httpx
import paho.mqtt.client as paho
import pytest

from millstream.client import Consumer, Producer, QueueConsumer
from millstream.doors import Message
from millstream.gateway.bodies import FRAMES
from millstream.protocol.message_frame import decode_frame
from support.frames import frame_of
from support.mqtt_client import mqtt_address
from support.node import NodeProcess
from support.sse import Events

SIZE = 1 << 20
TOPIC = "mqtt"  # where messages of MQTT clients go
SENT = {each: each * SIZE for each in ("k", "h", "f", "m")}
"""By Kafka's protocol, HTTP, frames over HTTP and MQTT."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("large"), ("--mqtt", "127.0.0.1:0")).start()
    try:
        yield node
        node.stop()
    finally:
        node.close()


def send_all(node: NodeProcess, gateway: httpx.Client, mqtt: paho.Client) -> None:
    with Producer(node.listen) as producer:
        producer.send(TOPIC, SENT["k"].encode(), key=b"big/k")
    assert gateway.post(f"/produce?topic={TOPIC}&key=big/h", json={"payload": SENT["h"]}).status_code == 200
    frame = frame_of(Message(b"big/f", SENT["f"].encode()))
    framed = gateway.post(f"/produce?topic={TOPIC}", content=frame, headers={"content-type": FRAMES})
    assert framed.status_code == 200, framed.text
    published = mqtt.publish("big/m", SENT["m"].encode(), qos=1)
    published.wait_for_publish(90)
    assert published.is_published()


def by_kafka(node: NodeProcess, _gateway: httpx.Client) -> Iterator[str]:
    with Consumer(node.listen, group_id="kafka", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([TOPIC])
        for message in consumer:
            yield bytes(message.value or b"").decode()


def by_queue(node: NodeProcess, _gateway: httpx.Client) -> Iterator[str]:
    with QueueConsumer(TOPIC, "queue", node.listen) as queue:
        while True:
            for message in queue.receive(max_messages=10, timeout=90):
                yield bytes(message.value or b"").decode()
                queue.accept(message)


def by_stream(_node: NodeProcess, gateway: httpx.Client) -> Iterator[str]:
    with Events(gateway, topic=TOPIC, group="stream") as events:
        while True:
            yield events.next()["payload"]


def by_poll(_node: NodeProcess, gateway: httpx.Client) -> Iterator[str]:
    while True:
        answer = gateway.get(f"/consume?topic={TOPIC}&group=poll", headers={"accept": "application/json"})
        yield from (each["payload"] for each in answer.json()["messages"])


def by_frames(_node: NodeProcess, gateway: httpx.Client) -> Iterator[str]:
    while True:
        data = gateway.get(f"/consume?topic={TOPIC}&group=frames", headers={"accept": FRAMES}).content
        while data:
            (length,) = struct.unpack_from(">i", data)
            yield bytes(decode_frame(data[: length + 4]).value or b"").decode()
            data = data[length + 4 :]


def by_log(_node: NodeProcess, gateway: httpx.Client) -> Iterator[str]:
    for partition in gateway.get("/topics").json()[TOPIC]:
        offset = 0
        while True:
            page = gateway.get(f"/topics/{TOPIC}/partitions/{partition}/records?offset={offset}").json()
            yield from (each["payload"] for each in page["records"])
            if page["next_offset"] == offset:
                break
            offset = page["next_offset"]


def test_a_mebibyte_passes_every_door(node: NodeProcess) -> None:
    heard: dict[str, bytes] = {}
    subscribed, all_heard = threading.Event(), threading.Event()
    mqtt = paho.Client(paho.CallbackAPIVersion.VERSION2, "large")
    mqtt.on_connect = lambda *_: mqtt.subscribe("big/#", qos=1)
    mqtt.on_subscribe = lambda *_: subscribed.set()

    def on_message(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        heard[message.topic] = message.payload
        if len(heard) == len(SENT):
            all_heard.set()

    mqtt.on_message = on_message
    mqtt.connect(*mqtt_address(node))
    mqtt.loop_start()
    readers: list[Callable[[NodeProcess, httpx.Client], Iterator[str]]] = [
        by_kafka, by_queue, by_stream, by_poll, by_frames, by_log,
    ]  # fmt: skip
    try:
        assert subscribed.wait(90)
        with httpx.Client(base_url=f"http://{node.http}", timeout=90) as gateway:
            send_all(node, gateway, mqtt)
            for read in readers:
                messages = read(node, gateway)
                assert {next(messages) for _ in SENT} == {*SENT.values()}, read.__name__
        assert all_heard.wait(90), "MQTT clients hear all four"
        assert {topic: payload.decode() for topic, payload in heard.items()} == {
            f"big/{name}": value for name, value in SENT.items()
        }
    finally:
        mqtt.disconnect()
        mqtt.loop_stop()
