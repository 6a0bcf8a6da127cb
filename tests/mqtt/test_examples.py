"""The examples with paho-mqtt and aiomqtt, and the telemetry streamer over MQTT, against a running node."""

import os
import subprocess
import sys
from pathlib import Path

import confluent_kafka

from support.mqtt_client import mqtt_address
from support.node import NodeProcess

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _run(node: NodeProcess, *command: str) -> str:
    host, port = mqtt_address(node)
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "MQTT_URL": f"mqtt://{host}:{port}",
            "MILLSTREAM_BOOTSTRAP": node.bootstrap,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_session_outlives_its_connection_with_paho(node):
    printed = _run(node, str(_EXAMPLES / "mqtt_paho.py"))
    assert printed.splitlines() == [
        "received example/7/temp 21.5",
        "the session was there: True",
        "received example/7/temp 22.0",
        "in the log: 21.5 22.0",
    ]


def test_jobs_are_worked_off_with_aiomqtt(node):
    assert _run(node, str(_EXAMPLES / "mqtt_aiomqtt.py")) == "6 of 6 jobs done, 1 of them at the second try\n"


def test_telemetry_comes_over_mqtt_with_its_keys(node):
    host, port = mqtt_address(node)
    options = ("--topic", "telemetry-mqtt", "--count", "300", "--rate", "1000")
    _run(node, "-m", "millstream", "telemetry", "stream", "--url", f"mqtt://{host}:{port}", *options)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": node.bootstrap, "group.id": "telemetry-test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["telemetry-mqtt"])
    keys = []
    while len(keys) < 300:
        (message,) = consumer.consume(1, 90) or [None]
        assert message is not None, f"{len(keys)} of 300 points came"
        if message.error() is None:
            keys.append(message.key())
    consumer.close()
    assert all(keys)
