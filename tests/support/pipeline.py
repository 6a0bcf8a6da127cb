"""The pipeline for tests: its job in a process of its own, and its parts over a shared Spark session."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka

from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
LOG_TIME = datetime(2026, 3, 2, tzinfo=UTC)
# A JVM that lives for a minute spends most of its time in optimizing compilers.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SMALL = (
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
    f"spark.driver.extraJavaOptions={_QUICK_JVM}",
    f"spark.executor.extraJavaOptions={_QUICK_JVM}",
)


def records_frame(spark: "SparkSession", records: Iterable[tuple[int, bytes | None]]) -> "DataFrame":
    """Offsets and values as a Kafka source gives them, in partition 0 of the topic `telemetry`."""
    rows = [
        (b"key", None if value is None else bytearray(value), "telemetry", 0, offset, LOG_TIME)
        for offset, value in records
    ]
    return spark.createDataFrame(rows, KAFKA_COLUMNS)


def telemetry_json(time: datetime, value: float, *, uuid: str = "GPU-1", metric: str = "GPU_UTIL") -> bytes:
    return json.dumps(
        {
            "timestamp": time.isoformat().replace("+00:00", "Z"),
            "metric_name": f"DCGM_FI_DEV_{metric}",
            "gpu_id": uuid[-1],
            "device": f"nvidia{uuid[-1]}",
            "uuid": uuid,
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"host-{int(uuid[-1]) % 2}",
            "container": "",
            "pod": "",
            "namespace": "",
            "value": value,
            "labels_raw": "",
        }
    ).encode()


@contextmanager
def opened_store(url: str, data: Path) -> Iterator[Store]:
    store = open_store(url, data=data)
    try:
        yield store
    finally:
        store.close()


class PipelineProcess:
    """`millstream pipeline run`, with everything that Spark starts in its process group."""

    def __init__(self, data: Path, bootstrap: str, *arguments: str, master: str = "local[2]") -> None:
        self.data = data
        self.log_file = data.parent / f"{data.name}.log"
        self._command = [
            sys.executable, "-m", "millstream", "pipeline", "run", "--bootstrap", bootstrap, "--data", str(data),
            "--master", master, *(word for each in _SMALL for word in ("--conf", each)), *arguments,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "PipelineProcess":
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def kill(self) -> None:
        """End driver and JVM as a power cut would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """As an operator would; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self, seconds: float = 240.0) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the pipeline did not end\n{self.log_end()}") from None
        self._process = None
        return code

    def status(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads((self.data / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return document

    def wait_until(self, wanted: Callable[[dict[str, Any]], bool], what: str, seconds: float = 240.0) -> None:
        """Until its status is as wanted; fails when the process ends before."""
        deadline = time.monotonic() + seconds
        while not wanted(self.status()):
            assert self._process is not None
            assert self._process.poll() is None, f"the pipeline ended early\n{self.log_end()}"
            assert time.monotonic() < deadline, f"{what}: not in time\n{self.status()}\n{self.log_end()}"
            time.sleep(0.1)

    def log_end(self) -> str:
        return self.log_file.read_text(errors="replace")[-4000:]


class Load:
    """Points sent steadily until it is stopped, some of them twice.

    `acknowledged` are the points that the broker has, `records` in how many records.
    """

    GPUS = 8
    START = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __init__(self, bootstrap: str, topic: str, per_second: int = 400) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        )
        self._topic = topic
        self._per_second = per_second
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

    @classmethod
    def point(cls, number: int) -> tuple[str, datetime, float]:
        """Which GPU, when and what value; no two numbers give the same GPU and time."""
        uuid = f"GPU-{number % cls.GPUS}"
        return uuid, cls.START + timedelta(milliseconds=100 * (number // cls.GPUS)), float(number % 101)

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._per_second)
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
