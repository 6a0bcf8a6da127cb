"""Telemetry of exactly 310 bytes, in a topic and in text files, the same lines in both."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import orjson

SIZE_BYTES = 310
PARTITIONS = 4
_GPUS = 256
_METRICS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED")
_START_S = 1_700_000_000
FIELDS = "uuid: string, metric: string, time: timestamp, value: double, hostname: string, labels: string"
SCHEMA = "uuid string, metric string, time timestamp, value double, hostname string, labels string"


def lines(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and JSON value; every GPU reports every metric every ten seconds."""
    per_round = _GPUS * len(_METRICS)
    for number in range(count):
        gpu = number % _GPUS
        uuid = f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}"
        record = {
            "uuid": uuid,
            "metric": _METRICS[number // _GPUS % len(_METRICS)],
            "time": f"{_time(_START_S + number // per_round * 10)}",
            "value": number % 1000 / 10,
            "hostname": f"host-{gpu // 8:04d}",
            "labels": "",
        }
        missing = SIZE_BYTES - len(orjson.dumps(record))
        record["labels"] = "x" * missing
        yield uuid.encode(), orjson.dumps(record)


def _time(seconds: int) -> str:
    minutes, second = divmod(seconds - _START_S, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"2026-01-{day + 1:02d}T{hour:02d}:{minute:02d}:{second:02d}Z"


def fill(bootstrap: str, topic: str, directory: Path, count: int) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 200_000}
    )
    directory.mkdir()
    files = [(directory / f"part-{number}.txt").open("wb") for number in range(PARTITIONS)]
    try:
        for number, (key, value) in enumerate(lines(count)):
            while True:
                try:
                    producer.produce(topic, value, key, number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
            files[number % PARTITIONS].write(value + b"\n")
    finally:
        for file in files:
            file.close()
    if producer.flush(60):
        raise RuntimeError("the topic could not be filled")
