"""The store is a function of the set of points: late, repeated and interrupted input ends in the same rows."""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.stores.base import EventQuery, RollupQuery, Store, TelemetryQuery
from millstream.pipeline.stores.rows import Level, Resolution
from support.node import NodeProcess
from support.store_rows import count_points
from support.telemetry_records import records_frame, telemetry_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.pipeline.job.parts import Parts

pytestmark = pytest.mark.xdist_group("spark")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


GPUS = 7


def fleet_records() -> list[bytes]:
    """Ninety minutes of seven GPUs: GPU-2 is well, though a job starts on it; each of the others has a trouble."""
    records = []
    for minute in range(30, 120):
        for second in (0, 30):
            time = NOON + timedelta(minutes=minute, seconds=second)
            for gpu in range(GPUS):
                if gpu == 1 and minute >= 60:
                    continue
                for metric, value in readings(gpu, minute).items():
                    records.append(telemetry_json(time, value, uuid=f"GPU-{gpu}", metric=metric))
    return records


def readings(gpu: int, minute: int) -> dict[str, float]:
    values = {"GPU_UTIL": 0.1 * ((minute * 7 + gpu) % 100)}
    match gpu:
        case 0:
            values["GPU_TEMP"] = 93.5 if 50 <= minute < 70 else 60.1
        case 2:
            values["FB_USED"] = 10.0 * minute + (60_000.0 if minute >= 60 else 0.0)
        case 3:
            values["FB_USED"] = 10_000 + 100.0 * minute
        case 4:
            values = {"GPU_UTIL": 90.0 if minute < 80 else 0.0, "FB_USED": 40_000.0}
        case 5:
            values["XID_ERRORS"] = 79.0 if 90 <= minute < 93 else 0.0
        case 6:
            values["POWER_USAGE"] = 750.0 if 108 <= minute < 113 else 400.0
    return values


@contextmanager
def parts(spark: "SparkSession", data: Path, broker: NodeProcess) -> "Iterator[Parts]":
    from millstream.pipeline.job.parts import Parts

    settings = PipelineSettings(data=str(data), bootstrap=broker.listen, events_topic=f"events-{data.name}")
    with Parts.opened(settings, spark) as opened:
        yield opened


def feed(spark: "SparkSession", opened: "Parts", batch_id: int, records: list[tuple[int, bytes]]) -> None:
    from millstream.pipeline.job.dataflow import Dataflow
    from millstream.pipeline.job.judge import typed_fields

    def no_letters(frame: object) -> None:
        raise AssertionError("there are no bad records")

    dataflow = Dataflow(opened.store, opened.limits, no_letters)
    fields = typed_fields(records_frame(spark, records), dataflow.limits)
    stored = dataflow.process(fields, batch_id, opened.ledger.watermark)
    opened.ledger.record(batch_id, stored.summary, rejected=stored.rejected)


def content(store: Store) -> tuple[object, ...]:
    start, end = NOON - timedelta(days=1), NOON + timedelta(days=1)
    return (
        [store.telemetry(TelemetryQuery(f"GPU-{gpu}", start, end, limit=10_000)).rows for gpu in range(GPUS)],
        [store.rollups(RollupQuery(resolution, limit=10_000)).rows for resolution in Resolution],
        store.events(EventQuery(limit=1000)).rows,
        count_points(store),
    )


def test_disorder_repetition_and_restarts_change_nothing(
    spark: "SparkSession", broker: NodeProcess, tmp_path: Path
) -> None:
    records = list(enumerate(fleet_records()))
    with parts(spark, tmp_path / "clean", broker) as opened:
        feed(spark, opened, 0, records)
        opened.recomputation.everything()
        clean = content(opened.store)

    shuffled = [*records, *random.Random(7).sample(records, 200)]
    random.Random(8).shuffle(shuffled)
    third = len(shuffled) // 3
    with parts(spark, tmp_path / "messy", broker) as opened:
        feed(spark, opened, 0, shuffled[:third])
        opened.recomputation.everything()
        feed(spark, opened, 1, shuffled[third : 2 * third])
    with parts(spark, tmp_path / "messy", broker) as opened:
        # The driver died after it had stored batch 1, so Spark replays it.
        feed(spark, opened, 1, shuffled[third : 2 * third])
        opened.recomputation.minutes()
        feed(spark, opened, 2, shuffled[2 * third :])
        opened.recomputation.everything()
        messy = content(opened.store)
        assert opened.ledger.totals["valid"] == len(shuffled)
        opened.store.compact()
        assert content(opened.store) == messy
    assert messy == clean

    _check_events(clean)


def _check_events(stored: tuple[object, ...]) -> None:
    found = {
        (event.kind, event.uuid, event.severity, event.status, (event.start - NOON) // MINUTE)
        for event in stored[2]  # type: ignore[attr-defined]
    }
    assert found == {
        ("thermal_excursion", "GPU-0", "critical", "closed", 50),
        ("silent_gpu", "GPU-1", "critical", "open", 60),
        # Known once nine tenths of the half hour are there.
        ("memory_leak", "GPU-3", "critical", "open", 56),
        ("utilisation_collapse", "GPU-4", "warning", "open", 80),
        ("xid_burst", "GPU-5", "critical", "closed", 90),
        # It ended within the watermark's delay, and is over all the same.
        ("power_excursion", "GPU-6", "warning", "closed", 108),
    }


# Sums, percentiles and their rounding have tests without Spark; here the same numbers take the whole way.
@pytest.mark.long
def test_rollups_are_exact_and_follow_a_point_to_another_host(
    spark: "SparkSession", broker: NodeProcess, tmp_path: Path
) -> None:
    values = [0.1, 0.2, 0.3, 99.7, 50.05, 1e-3, 33.3, 66.6, 12.5, 87.9]
    exact = [
        telemetry_json(NOON + timedelta(seconds=number), value, uuid=f"GPU-{number % 2}")
        for number, value in enumerate(values)
    ]
    later = NOON + timedelta(hours=5)
    stays, moves = (telemetry_json(later, float(gpu), uuid=f"GPU-{gpu}") for gpu in (1, 0))
    with parts(spark, tmp_path / "exact", broker) as opened:
        feed(spark, opened, 0, list(enumerate([*exact, stays, moves])))
        opened.recomputation.everything()
        for resolution in Resolution:
            check_exact(opened.store, resolution, values)
        # The same point once more, as one of the other host.
        feed(spark, opened, 1, [(len(exact) + 2, moves.replace(b"host-0", b"host-1"))])
        opened.recomputation.everything()
        for resolution in Resolution:
            check_exact(opened.store, resolution, values)
            hosts = opened.store.rollups(RollupQuery(resolution, level=Level.HOST, start=later)).rows
            assert [(row.key, row.count) for row in hosts] == [("host-1", 2)]
            gpus = opened.store.rollups(RollupQuery(resolution, level=Level.GPU, start=later)).rows
            assert [(row.key, row.hostname) for row in gpus] == [("GPU-0", "host-1"), ("GPU-1", "host-1")]


def check_exact(store: Store, resolution: Resolution, values: list[float]) -> None:
    end = NOON + timedelta(hours=1)
    [row] = store.rollups(RollupQuery(resolution, level=Level.FLEET, end=end)).rows
    assert (row.key, row.hostname, row.count) == ("fleet", "", len(values))
    assert (row.min, row.max) == (1e-3, 99.7)
    assert row.mean == math.fsum(values) / len(values)
    ordered = sorted(values)
    assert row.p95 == pytest.approx(ordered[8] + (ordered[9] - ordered[8]) * 0.55, rel=1e-15)
    gpus = store.rollups(RollupQuery(resolution, level=Level.GPU, end=end)).rows
    assert [(each.key, each.hostname, each.count) for each in gpus] == [
        ("GPU-0", "host-0", 5),
        ("GPU-1", "host-1", 5),
    ]
    hosts = store.rollups(RollupQuery(resolution, level=Level.HOST, end=end)).rows
    assert {each.key for each in hosts} == {"host-0", "host-1"}
