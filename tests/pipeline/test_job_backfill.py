"""Backfills: from the log into an empty store, and from the store with other thresholds."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.stores.base import EventQuery, RollupQuery
from millstream.pipeline.stores.rows import Level, Resolution
from support.influx import InfluxProcess, influxd_path
from support.node import NodeProcess
from support.pipeline import opened_store
from support.reading import read_topic
from support.store_rows import count_points
from support.telemetry_records import telemetry_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.long
def test_a_range_of_the_log_and_then_of_the_store(
    spark: "SparkSession", broker: NodeProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    from millstream.pipeline.job.backfill import Backfilled, BackfillSource, backfill

    topic = new_topic()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.listen})
    for minute in range(20):
        time = NOON + timedelta(minutes=minute)
        producer.produce(topic, telemetry_json(time, 70.0 + minute, metric="GPU_TEMP"), b"GPU-1")
    producer.produce(topic, b"not telemetry", b"bad")
    producer.flush()

    settings = PipelineSettings(
        bootstrap=broker.listen, topic=topic, events_topic=f"{topic}-events", data=str(tmp_path / "job")
    )
    start, end = NOON + timedelta(minutes=5), NOON + timedelta(minutes=14)
    told: list[tuple[str, int, int]] = []
    done = backfill(spark, settings, start, end, BackfillSource.LOG, lambda *step: told.append(step))
    assert done == Backfilled(10), "the ends of the range belong to it"
    assert ("minutes", 10, 10) in told
    with opened_store(settings.store_url, tmp_path / "job") as store:
        assert count_points(store) == 10
        rows = store.rollups(RollupQuery(Resolution.MINUTE, level=Level.GPU, limit=100)).rows
        assert [row.mean for row in rows] == [70.0 + minute for minute in range(5, 15)]
        assert store.events(EventQuery()).rows == ()

    cooler = replace(settings, temperature_warning=80.0)
    assert backfill(
        spark, cooler, NOON, NOON + timedelta(hours=1), BackfillSource.STORE, lambda *step: None
    ) == Backfilled(10)
    with opened_store(settings.store_url, tmp_path / "job") as store:
        [event] = store.events(EventQuery()).rows
        assert (event.kind, event.start) == ("thermal_excursion", NOON + timedelta(minutes=10))

    assert backfill(
        spark, settings, NOON, NOON + timedelta(hours=1), BackfillSource.STORE, lambda *step: None
    ) == Backfilled(10)
    with opened_store(settings.store_url, tmp_path / "job") as store:
        assert store.events(EventQuery()).rows == (), "with the old threshold it is retracted"


def test_an_empty_range_has_nothing_to_compute(
    spark: "SparkSession", broker: NodeProcess, tmp_path: Path
) -> None:
    from millstream.pipeline.job.backfill import Backfilled, BackfillSource, backfill

    settings = PipelineSettings(bootstrap=broker.listen, data=str(tmp_path / "job"))
    assert backfill(spark, settings, NOON, NOON, BackfillSource.STORE, lambda *step: None) == Backfilled(0)


@pytest.mark.long
@pytest.mark.skipif(influxd_path() is None, reason="influxd is not installed (Debian package influxdb)")
def test_points_that_the_store_refuses_are_dead_letters(
    spark: "SparkSession", broker: NodeProcess, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    from millstream.pipeline.job.backfill import Backfilled, BackfillSource, backfill

    topic = new_topic()
    refused = telemetry_json(NOON, 2.0, uuid="GPU-2").replace(b'"pod": ""', b'"pod": "no tag\\\\"')
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.listen})
    for record in (telemetry_json(NOON, 1.0), refused):
        producer.produce(topic, record, b"key")
    producer.flush()
    server = InfluxProcess(tmp_path / "influx").start()
    settings = PipelineSettings(
        bootstrap=broker.listen, topic=topic, events_topic=f"{topic}-events", dead_letter_topic=f"{topic}-dead",
        data=str(tmp_path / "job"), store=f"influx:{server.url}?db=telemetry",
    )  # fmt: skip
    try:
        done = backfill(spark, settings, NOON, NOON, BackfillSource.LOG, lambda *step: None)
        with opened_store(settings.store_url, tmp_path / "job") as store:
            assert count_points(store) == 1
    finally:
        server.stop()
    assert done == Backfilled(minutes=1, rejected=1)
    [message] = read_topic(broker.listen, settings.dead_letter_topic, 1)
    letter = json.loads(message.value)
    assert (letter["reason"], letter["topic"]) == ("rejected_by_store", topic)
    assert base64.b64decode(letter["original_base64"]) == refused
