"""The clients that people use, against a real node."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest

from support.mqtt_client import mqtt_address

PATIENCE_S = 90


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_paho(node, new_topic, transport, version):
    topic = new_topic()
    heard, done = [], threading.Event()
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, f"paho-{topic}", protocol=version, transport=transport
    )
    client.on_connect = lambda *_: client.subscribe(f"{topic}/#", qos=2)
    client.on_subscribe = lambda *_: [client.publish(f"{topic}/{qos}", b"x" * 100, qos) for qos in (0, 1, 2)]

    def on_message(_client, _data, message):
        heard.append((message.topic, message.qos, len(message.payload)))
        if len(heard) == 3:
            done.set()

    client.on_message = on_message
    client.connect(*mqtt_address(node, "mqtt" if transport == "tcp" else "mqtt-ws"))
    client.loop_start()
    try:
        assert done.wait(PATIENCE_S), heard
    finally:
        client.disconnect()
        client.loop_stop()
    assert sorted(heard) == [(f"{topic}/{qos}", qos, 100) for qos in (0, 1, 2)]


def test_aiomqtt(node, new_topic):
    topic = new_topic()
    host, port = mqtt_address(node)

    async def talk() -> list[bytes]:
        async with aiomqtt.Client(host, port, identifier=f"aio-{topic}") as client:
            await client.subscribe(topic, qos=2)
            for number in range(5):
                await client.publish(topic, f"{number}", qos=2)
            messages = aiter(client.messages)
            return [(await anext(messages)).payload for _ in range(5)]

    assert asyncio.run(asyncio.wait_for(talk(), PATIENCE_S)) == [b"0", b"1", b"2", b"3", b"4"]


def test_gmqtt(node, new_topic):
    topic = new_topic()

    async def talk() -> tuple[bytes, list[tuple[str, str]]]:
        heard: asyncio.Future[tuple[bytes, list[tuple[str, str]]]] = (
            asyncio.get_running_loop().create_future()
        )
        client = gmqtt.Client(f"gmqtt-{topic}")

        async def on_message(_client, _topic, payload, _qos, properties):
            heard.set_result((payload, properties["user_property"]))
            return 0

        client.on_message = on_message
        client.on_subscribe = lambda *_: client.publish(topic, b"hello", qos=1, user_property=("a", "b"))
        await client.connect(*mqtt_address(node))
        client.subscribe(topic, qos=1)
        try:
            return await heard
        finally:
            await client.disconnect()

    assert asyncio.run(asyncio.wait_for(talk(), PATIENCE_S)) == (b"hello", [("a", "b")])


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto's clients are not installed")
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_pub_and_sub(node, new_topic, version):
    topic = new_topic()
    host, port = mqtt_address(node)
    place = ["-h", host, "-p", str(port), "-V", version, "-t", topic]
    subprocess.run(["mosquitto_pub", *place, "-q", "2", "-r", "-m", "kept"], check=True, timeout=PATIENCE_S)
    heard = subprocess.run(
        ["mosquitto_sub", *place, "-q", "2", "-C", "1"], check=True, timeout=PATIENCE_S, capture_output=True
    )
    assert heard.stdout == b"kept\n"


_MQTT_JS = """
const client = require("mqtt").connect(process.argv[1], { protocolVersion: 5, reconnectPeriod: 0 });
client.on("error", (error) => { throw error; });
client.on("message", (topic, payload, packet) => {
  console.log(`${topic} ${payload} ${packet.qos}`);
  client.end();
});
client.subscribe("js/+", { qos: 2 }, (error) => {
  if (error) throw error;
  client.publish("js/one", "from node", { qos: 2 });
});
"""


def test_mqtt_js(node):
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    # Where the set-up puts it.
    modules = Path(sys.prefix) / "node_modules"
    if not (modules / "mqtt").exists():
        pytest.skip("MQTT.js is not installed: scripts/setup does it where npm is")
    host, port = mqtt_address(node)
    done = subprocess.run(
        ["node", "-e", _MQTT_JS, f"mqtt://{host}:{port}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "NODE_PATH": str(modules)},
    )
    assert (done.stdout, done.stderr) == ("js/one from node 2\n", "")
