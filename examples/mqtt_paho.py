"""Devices with paho-mqtt: what they publish is a record of the log, which a Kafka client reads.

    millstream serve --mqtt 127.0.0.1:1883
    python examples/mqtt_paho.py

The session outlives the connection: what came while the subscriber was away is delivered when it is back.
"""

import os
import queue
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from confluent_kafka import Consumer
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

ADDRESS = urlsplit(os.environ.get("MQTT_URL", "mqtt://localhost:1883"))
BOOTSTRAP = os.environ.get("MILLSTREAM_BOOTSTRAP", "localhost:9092")
WAIT_S = 60.0


def connected(client_id: str, received: "queue.Queue[str]") -> tuple[mqtt.Client, bool]:
    """A client whose session is kept for an hour, and whether it was there already."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
    present: queue.Queue[bool] = queue.Queue()
    client.on_connect = lambda _client, _data, flags, _reason, _properties: present.put(flags.session_present)
    client.on_message = lambda _client, _data, message: received.put(
        f"{message.topic} {message.payload.decode()}"
    )
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 3600
    client.connect(ADDRESS.hostname or "", ADDRESS.port or 1883, clean_start=False, properties=properties)
    client.loop_start()
    return client, present.get(timeout=WAIT_S)


def main() -> None:
    received: queue.Queue[str] = queue.Queue()
    reader, _ = connected("example-reader", received)
    subscribed: queue.Queue[None] = queue.Queue()
    reader.on_subscribe = lambda *_: subscribed.put(None)
    reader.subscribe("example/+/temp", qos=2)
    subscribed.get(timeout=WAIT_S)
    device, _ = connected("example-device", queue.Queue())
    device.publish("example/7/temp", "21.5", qos=1).wait_for_publish(WAIT_S)
    print("received", received.get(timeout=WAIT_S))
    reader.disconnect()
    reader.loop_stop()
    device.publish("example/7/temp", "22.0", qos=2).wait_for_publish(WAIT_S)
    reader, present = connected("example-reader", received)
    print("the session was there:", present)
    print("received", received.get(timeout=WAIT_S))
    reader.unsubscribe("example/+/temp")
    print("in the log:", *in_log("example/7/temp", 2))
    for client in (reader, device):
        client.disconnect()
        client.loop_stop()


def in_log(topic: str, count: int) -> list[str]:
    """The first messages of an MQTT topic, as a Kafka client finds them: its key is the MQTT topic."""
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "example-mqtt", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["mqtt"])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        if message is None:
            raise SystemExit("the log does not have the messages")
        if message.error() is None and message.key() == topic.encode():
            found.append((message.value() or b"").decode())
    consumer.close()
    return found


if __name__ == "__main__":
    main()
