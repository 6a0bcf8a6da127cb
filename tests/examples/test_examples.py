"""Every example runs to its end against a running broker, and says what its comments promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.testing import EmbeddedBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OUTPUT = {
    "at_most_once.py": ["crashed while processing message 4", "9 of 10 processed, 0 twice"],
    "at_least_once.py": ["crashed after processing message 4", "10 of 10 processed, 1 twice"],
    "exactly_once_effect.py": ["crashed while booking payment 7", "alice has 100, expected 100"],
    "backpressure.py": ["200 jobs done", "paused at least once: True"],
    "custom_partitioner.py": ["acme: partition 0, globex: partition 1", "the others: {2: "],
    "asyncio_pipeline.py": ["200 readings cleaned"],
    "manual_offsets.py": [
        "read [0, 1, 2, 3]\nread [4, 5]\n",
        "the group continues at 6\nnow it continues at 0\n",
        "read [0, 1, 2]\n",
    ],
}
pytestmark = pytest.mark.millstream(scope="session")


@pytest.mark.parametrize("example", OUTPUT)
def test_example_does_what_it_says(example: str, millstream_broker: EmbeddedBroker) -> None:
    printed = _run(example, millstream_broker)

    assert [line for line in OUTPUT[example] if line not in printed] == [], printed


def test_consumer_example_reads_what_the_producer_example_sent(millstream_broker: EmbeddedBroker) -> None:
    sent = _run("simple_producer.py", millstream_broker)
    read = _run("simple_consumer.py", millstream_broker)

    assert "stored in events, partition 0, at offset" in sent
    assert "and 5 more in one batch" in sent
    assert [line.split(": ")[1] for line in read.splitlines()] == [f"Hello World {n}" for n in range(10)]


def test_no_example_is_forgotten() -> None:
    # What draws a picture with Spark is run with the tests of the source, the collector with those of the gateway,
    # devices with those of MQTT.
    elsewhere = {"spark_windowed_mean.py", "http_collector.py", "mqtt_paho.py", "mqtt_aiomqtt.py"}
    tested = {*OUTPUT, "simple_producer.py", "simple_consumer.py"} | elsewhere

    assert {path.name for path in EXAMPLES.glob("*.py")} - {"__init__.py"} == tested


def _run(example: str, broker: EmbeddedBroker) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        env={**os.environ, "MILLSTREAM_BOOTSTRAP": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
