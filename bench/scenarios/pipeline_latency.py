"""From producing a point to finding it in the store, while 5,000 points a second go through `millstream pipeline run`.

Every 20 ms a hundred points are produced. One of them is a probe, a point of a GPU of its own, and carries the time at
which it was due; a reader asks the store for new probes over and over. So a latency includes the producer, the broker,
the micro-batch, the write and the query.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

from bench.peers import Durability, PeerError
from bench.scenarios.pipeline_names import LATENCY_RATE, latency_name
from bench.session import Session

if TYPE_CHECKING:
    from millstream.pipeline.stores.base import StoreReader

NAME = "pipeline-latency"
_PARTITIONS = 4
_BURST_SECONDS = 0.02
_FIRST_PROBE_TIMEOUT_SECONDS = 120.0
_LAST_PROBE_TIMEOUT_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_SETTLED_SECONDS = 5.0
_STOP_TIMEOUT_SECONDS = 180.0
_ASK_EVERY_SECONDS = 0.2
_PROBE_GPU = 1 << 20
_PERCENTILES = {"p50": 0.50, "p99": 0.99, "highest": 1.0}


def run(session: Session) -> None:
    try:
        from millstream.pipeline.stores.open import open_store
    except ImportError as missing:
        session.skip(NAME, "all of it", f"the extra `pipeline` is not installed ({missing})")
        return
    warm_up_s, seconds = (10.0, 15.0) if session.plan.quick else (30.0, 45.0)
    rounds = session.plan.rounds_of(full=3, quick=1)
    with session.millstream() as broker, session.data_directory() as directory:
        topic = session.unique("telemetry")
        broker.create_topic(topic, _PARTITIONS, Durability.RELAXED)
        store = open_store(f"parquet:{directory / 'store'}", data=directory)
        session.display.step("starting the pipeline")
        with _pipeline(broker.bootstrap, topic, directory), _Producer(broker.bootstrap, topic) as producer:
            watch = _Watch(store, producer)
            watch.wait_for_first()
            session.display.step(f"warming up for {warm_up_s:.0f} s")
            producer.at_full_rate.set()
            watch.settle(warm_up_s)
            measured: list[list[float]] = []
            producer.forget_delays()
            try:
                for number in range(rounds):
                    session.display.step(f"round {number + 1} of {rounds}")
                    measured.append(watch.follow(seconds))
                producer.check_rate()
            finally:
                # What was measured before something failed says more than nothing.
                if measured:
                    _record(session, measured)
        store.close()


def _record(session: Session, measured: list[list[float]]) -> None:
    for name, share in _PERCENTILES.items():
        session.record_figure(NAME, latency_name(name), "s", [_percentile(some, share) for some in measured])


@contextmanager
def _pipeline(bootstrap: str, topic: str, directory: Path) -> Iterator[None]:
    command = [
        sys.executable, "-m", "millstream", "pipeline", "run", "--bootstrap", bootstrap, "--topic", topic,
        "--store", f"parquet:{directory / 'store'}", "--data", str(directory / "job"), "--master", "local[2]",
    ]  # fmt: skip
    log_path = directory / "pipeline.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise PeerError(f"the pipeline ended with status {process.returncode}: {_end_of(log_path)}")
    except PeerError as error:
        raise PeerError(f"{error}; the pipeline said: {_end_of(log_path)}") from error
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_of(log: Path) -> str:
    return " | ".join(log.read_text(errors="replace").splitlines()[-5:])


class _Producer:
    """Produces on a thread of its own until the end of the block: probes alone at first, then at the full rate.

    Spark takes its time to start; what came meanwhile would have to be caught up with.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        from bench.scenarios import pipeline_data
        from millstream.pipeline.metrics import GPU_UTIL

        self.probe = pipeline_data.one_series(_PROBE_GPU, GPU_UTIL)
        self._others = pipeline_data.series()
        self._topic = topic
        self._client = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.at_full_rate = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-producer", daemon=True)
        self._failure: BaseException | None = None
        self._worst_delay_s = 0.0

    def __enter__(self) -> "_Producer":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()
        self._client.flush(10)
        # The broker stops before this object goes; a client that lives on would complain.
        del self._client

    def check(self) -> None:
        """Raises when it ended."""
        if self._failure is not None:
            raise PeerError(f"the producer ended: {self._failure}")

    def forget_delays(self) -> None:
        """While Spark starts and compiles, everybody waits for the processor."""
        self._worst_delay_s = 0.0

    def check_rate(self) -> None:
        """Raises when it did not keep its rate."""
        if self._worst_delay_s > 1.0:
            raise PeerError(f"the producer was {self._worst_delay_s:.1f} s behind its rate")

    def _run(self) -> None:
        try:
            self._produce()
        except (confluent_kafka.KafkaException, BufferError) as failure:
            self._failure = failure

    def _produce(self) -> None:
        from millstream.pipeline.record import format_time

        size = int(LATENCY_RATE * _BURST_SECONDS)
        began, number, place = time.time(), 0, 0
        while not self._stop.is_set():
            due = began + number * _BURST_SECONDS
            number += 1
            time.sleep(max(0.0, due - time.time()))
            self._worst_delay_s = max(self._worst_delay_s, time.time() - due)
            text = format_time(int(due * 1000))
            self._client.produce(self._topic, self.probe.template.fill(text, 1.0), self.probe.key)
            for _ in range(size - 1 if self.at_full_rate.is_set() else 0):
                series = self._others[place % len(self._others)]
                place += 1
                self._client.produce(self._topic, series.template.fill(text, place % 100), series.key)
            self._client.poll(0)


class _Watch:
    """Asks the store for probes that were not there before."""

    def __init__(self, store: "StoreReader", producer: _Producer) -> None:
        self._store = store
        self._producer = producer
        self._uuid = producer.probe.record.uuid
        self._seen: set[datetime] = set()
        self._after = datetime.now(UTC)

    def wait_for_first(self) -> None:
        deadline = time.monotonic() + _FIRST_PROBE_TIMEOUT_SECONDS
        while not self._ask():
            if time.monotonic() > deadline:
                raise PeerError(f"no point was in the store after {_FIRST_PROBE_TIMEOUT_SECONDS:.0f} s")
            time.sleep(_ASK_EVERY_SECONDS)

    def settle(self, seconds: float) -> None:
        """Let the JVM compile and the first backlog go; a pipeline that does not keep up is measured as it is."""
        deadline = time.monotonic() + seconds + _SETTLE_SECONDS
        latencies = self.follow(seconds)
        while _percentile(latencies, 0.5) > _SETTLED_SECONDS and time.monotonic() < deadline:
            latencies = self.follow(_SETTLED_SECONDS)

    def follow(self, seconds: float) -> list[float]:
        """Seconds from due to found, of all probes that were due in the next `seconds`."""
        first = datetime.now(UTC)
        last = first + timedelta(seconds=seconds)
        found: dict[datetime, float] = {}
        deadline = time.monotonic() + seconds + _LAST_PROBE_TIMEOUT_SECONDS
        # Probes of one GPU are stored in order, so a later one tells that all are there.
        while not found or max(found) <= last:
            self._producer.check()
            if time.monotonic() > deadline:
                raise PeerError(
                    f"points were not in the store {_LAST_PROBE_TIMEOUT_SECONDS:.0f} s after producing"
                )
            for probe, at in self._ask().items():
                if probe >= first:
                    found[probe] = (at - probe).total_seconds()
            time.sleep(_ASK_EVERY_SECONDS)
        return [latency for probe, latency in found.items() if probe <= last]

    def _ask(self) -> dict[datetime, datetime]:
        """New probes, and when the answer was there."""
        from millstream.pipeline.stores.base import TelemetryQuery

        now = datetime.now(UTC)
        # The store is asked again for what it had lately: micro-batches need not end in the order of time.
        page = self._store.telemetry(TelemetryQuery(self._uuid, self._after, now, limit=100_000))
        answered = datetime.now(UTC)
        new = {point.time for point in page.rows} - self._seen
        self._seen |= new
        if new:
            self._after = max(self._after, max(new) - timedelta(seconds=30))
        return dict.fromkeys(new, answered)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
