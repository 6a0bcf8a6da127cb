"""Telemetry as the streamer writes it, about 310 bytes a record: in a topic, in text files, and as Arrow."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka

from bench.peers import PeerError
from millstream.pipeline.metrics import FB_USED, GPU_TEMP, GPU_UTIL, POWER_USAGE
from millstream.pipeline.record import RecordTemplate, TelemetryRecord, format_time

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS = 4
START_MS = 1_772_366_400_000
_GPUS = 256
_METRICS = (GPU_UTIL, GPU_TEMP, POWER_USAGE, FB_USED)
_STEP_MS = 10_000
_FLUSH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Series:
    record: TelemetryRecord
    template: RecordTemplate

    @property
    def key(self) -> bytes:
        return self.record.uuid.encode()


def series() -> list[Series]:
    """Every metric of every GPU."""
    return [one_series(gpu, metric) for metric in _METRICS for gpu in range(_GPUS)]


def one_series(gpu: int, metric: str) -> Series:
    record = TelemetryRecord(
        time_ms=0, metric_name=metric, uuid=f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}", value=0.0, gpu_id=str(gpu % 8),
        device=f"nvidia{gpu % 8}", model_name="NVIDIA H100 80GB HBM3", hostname=f"gpu-host-{gpu // 8 + 1:04d}",
        labels_raw='DCGM_FI_DRIVER_VERSION="535.129.03"',
    )  # fmt: skip
    return Series(record, RecordTemplate.of(record))


@dataclass(frozen=True, slots=True)
class Value:
    series: Series
    time_ms: int
    value: float


def values(count: int) -> Iterator[Value]:
    """All series one after the other every ten seconds; 1,024 values are a round."""
    everything = series()
    for number in range(count):
        turn, place = divmod(number, len(everything))
        yield Value(everything[place], START_MS + turn * _STEP_MS, number % 1000 / 10)


def last_ms(count: int) -> int:
    return START_MS + (count - 1) // (_GPUS * len(_METRICS)) * _STEP_MS


def fill(bootstrap: str, topic: str, directory: Path, count: int) -> None:
    """The same records into the topic and into text files, as many files as partitions."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    )
    directory.mkdir()
    files = [(directory / f"part-{number}.txt").open("wb") for number in range(PARTITIONS)]
    try:
        for number, value in enumerate(values(count)):
            # A GPU's points are in one partition, as the pipeline's rule about repeated points needs it.
            partition = number % _GPUS % PARTITIONS
            record = value.series.template.fill(format_time(value.time_ms), value.value)
            _produce(producer, topic, record, value.series.key, partition)
            files[partition].write(record + b"\n")
    finally:
        for file in files:
            file.close()
    if producer.flush(_FLUSH_SECONDS):
        raise PeerError("the topic could not be filled within a minute")


def fill_bad(bootstrap: str, topic: str, count: int, share: float) -> int:
    """Records of which a share is cut off in the middle, spread evenly; how many are."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    )
    every = round(1 / share)
    for number, value in enumerate(values(count)):
        record = value.series.template.fill(format_time(value.time_ms), value.value)
        is_bad = number % every == 0
        partition = number % _GPUS % PARTITIONS
        _produce(
            producer, topic, record[: len(record) // 2] if is_bad else record, value.series.key, partition
        )
    if producer.flush(_FLUSH_SECONDS):
        raise PeerError("the topic could not be filled within a minute")
    return -(-count // every)


def _produce(
    producer: confluent_kafka.Producer, topic: str, record: bytes, key: bytes, partition: int
) -> None:
    while True:
        try:
            producer.produce(topic, record, key, partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def points(count: int) -> "pa.RecordBatch":
    """The same values with the columns of a point."""
    import pyarrow as pa

    rows = list(values(count))

    def strings(name: str) -> "pa.Array":
        return pa.array([getattr(row.series.record, name) for row in rows], pa.string())

    times = pa.array([row.time_ms * 1000 for row in rows], pa.timestamp("us", "UTC"))
    names = (
        "uuid",
        "gpu_id",
        "device",
        "model_name",
        "hostname",
        "container",
        "pod",
        "namespace",
        "labels_raw",
    )
    columns = {
        "time": times,
        "metric": strings("metric_name"),
        "value": pa.array([row.value for row in rows]),
    }
    return pa.RecordBatch.from_pydict(columns | {name: strings(name) for name in names})
