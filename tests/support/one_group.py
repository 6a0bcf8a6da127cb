"""Share consumers of several libraries in one group: librdkafka's in this process, others as programs."""

import os
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer

from millstream.client import QueueAdmin

_MESSAGES = 400
_ACCEPT = 1
_SECONDS = 180
_SOURCE = Path(__file__).parents[1] / "interop" / "franz"


def build_franz(directory: Path) -> Path | None:
    """franz-go's share consumer as a program; None without Go. The test is skipped where its modules cannot be had."""
    if shutil.which("go") is None:
        return None
    built = directory / "consumer"
    done = subprocess.run(
        ["go", "build", "-o", str(built), "."],
        cwd=_SOURCE,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
    )
    if done.returncode:
        pytest.skip(f"franz-go cannot be had: {done.stderr[-300:]}")
    return built


class PrintingConsumer:
    """A program that prints the values it gets, one a line; it ends with its input, or `by_signal`."""

    def __init__(self, *command: str, by_signal: bool = False) -> None:
        self._by_signal = by_signal
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
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
        if self._by_signal:
            self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(60)
        if self._process.stdout is not None:
            self._process.stdout.close()


def share_a_queue(bootstrap: str, topic: str, group: str, commands: Sequence[PrintingConsumer]) -> None:
    """Messages are sent until everybody has got some; each of them goes to one consumer, once."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 10})
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    mine: list[str] = []
    sent, deadline = 0, time.monotonic() + _SECONDS
    while True:
        got = [len(mine), *(len(each.values) for each in commands)]
        if sent >= _MESSAGES and all(got) and sum(got) >= sent:
            break
        assert time.monotonic() < deadline, f"{got} of {sent} were delivered"
        if sent < _MESSAGES or not all(got):
            for _ in range(20):
                producer.produce(topic, str(sent))
                sent += 1
            assert producer.flush(60) == 0
        for message in consumer.poll(0.2):
            assert message.error() is None
            mine.append((message.value() or b"").decode())
            consumer.acknowledge(message, _ACCEPT)
        consumer.commit_sync(timeout=60)
    with QueueAdmin(bootstrap) as admin:
        # Some accept what they have with their next poll.
        while any(row.depth for row in admin.queues(group)):
            assert time.monotonic() < deadline, "not all was settled"
            time.sleep(0.1)
    consumer.close()
    for each in commands:
        each.stop()
    everything = [*mine, *(value for each in commands for value in each.values)]
    assert Counter(everything) == Counter(map(str, range(sent)))
