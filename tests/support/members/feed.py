"""A producer that goes on in the background, so that groups always have something to read."""

import threading
import time
from types import TracebackType

from confluent_kafka import Producer


class Feed:
    """Messages to all partitions in turn; `ends` are the offsets acknowledged so far."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int = 200) -> None:
        self.ends = dict.fromkeys(range(partitions), 0)
        self._topic, self._partitions, self._pause_s = topic, partitions, partitions / per_second
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def finish(self) -> dict[int, int]:
        """Stop; everything sent is acknowledged."""
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0
        return self.ends

    def _run(self) -> None:
        while not self._stop.is_set():
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"m", partition=partition, on_delivery=self._acknowledged)
            self._producer.poll(0)
            time.sleep(self._pause_s)

    def _acknowledged(self, error: object, message: object) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()  # type: ignore[attr-defined]
        self.ends[partition] = max(self.ends[partition], offset + 1)
