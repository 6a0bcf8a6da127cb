"""franz-go's share consumer and librdkafka's in one group: each message goes to one of them."""

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer

from millstream.client import QueueAdmin
from support.node import NodeProcess

SOURCE = Path(__file__).parent / "franz"
MESSAGES = 400
ACCEPT = 1

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="needs Go")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("franz") / "consumer"
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
    )
    if done.returncode:
        pytest.skip(f"franz-go cannot be had: {done.stderr[-300:]}")
    return built


class Franz:
    def __init__(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(program), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.values: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.values.append(line.strip())

    def stop(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(60)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def franz(program: Path) -> Iterator[Callable[..., Franz]]:
    running: list[Franz] = []

    def start(*arguments: str) -> Franz:
        running.append(Franz(program, *arguments))
        return running[-1]

    yield start
    for each in running:
        each.stop()


def test_two_libraries_share_a_queue(
    broker: NodeProcess, new_topic: Callable[[], str], franz: Callable[..., Franz]
) -> None:
    topic = new_topic()
    group = f"{topic}-group"
    with QueueAdmin(broker.bootstrap) as admin:
        admin.alter_group_configs(group, {"share.auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 10})
    consumer = ShareConsumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    other = franz(broker.bootstrap, topic, group)
    mine: list[str] = []
    sent = 0
    deadline = time.monotonic() + 120
    while sent < MESSAGES or len(mine) + len(other.values) < sent or not (mine and other.values):
        assert time.monotonic() < deadline, f"{len(mine)} and {len(other.values)} of {sent} were delivered"
        if sent < MESSAGES or not (mine and other.values):
            for _ in range(20):
                producer.produce(topic, str(sent))
                sent += 1
            assert producer.flush(60) == 0
        for message in consumer.poll(0.2):
            assert message.error() is None
            mine.append((message.value() or b"").decode())
            consumer.acknowledge(message, ACCEPT)
        consumer.commit_sync(timeout=60)
    consumer.close()
    other.stop()
    assert Counter(mine + other.values) == Counter(map(str, range(sent)))
