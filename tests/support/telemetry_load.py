"""A steady load of telemetry, and what of it the broker has."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka

from support.telemetry_records import telemetry_json
from support.waiting import wait_for


class Load:
    """Points sent steadily until it is stopped, some of them twice.

    `acknowledged` are the points that the broker has, `records` in how many records.
    """

    GPUS = 8
    START = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=2)
    """Old enough that its hours are over, new enough that no store has let go of it."""

    def __init__(self, bootstrap: str, topic: str, per_second: int = 100) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        )
        self._topic = topic
        self.per_second = per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.records = 0
        self.failed: list[str] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def finish(self) -> None:
        """Stop, and wait for the broker's answers."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0, "the broker did not take everything"
        assert not self.failed, self.failed[:3]

    def wait_for_more(self, points: int) -> None:
        """Until the broker has so many more."""
        wanted = len(self.acknowledged) + points
        wait_for(lambda: len(self.acknowledged), lambda found: found >= wanted, "more points")

    @classmethod
    def point(cls, number: int) -> tuple[str, datetime, float]:
        """Which GPU, when and what value; no two numbers give the same GPU and time."""
        uuid = f"GPU-{number % cls.GPUS}"
        return uuid, cls.START + timedelta(milliseconds=100 * (number // cls.GPUS)), float(number % 101)

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self.per_second)
            while self.sent < due and not self._stop.is_set():
                uuid, moment, value = self.point(self.sent)
                data = telemetry_json(moment, value, uuid=uuid)
                for _ in range(2 if self.sent % 10 == 0 else 1):
                    self._producer.produce(
                        self._topic, data, uuid.encode(), on_delivery=self._delivered(self.sent)
                    )
                self.sent += 1
            self._producer.poll(0.02)

    def _delivered(self, number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.add(number)
                self.records += 1
            else:
                self.failed.append(str(error))

        return note
