"""Every produced point is in the store exactly once after the driver, the broker and the database were killed."""

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.pipeline.stores.base import RollupQuery, Store, TelemetryQuery
from millstream.pipeline.stores.rows import Level, Resolution
from millstream.testing import EmbeddedBroker
from support.influx import InfluxProcess, influxd_path
from support.pipeline import PipelineProcess, opened_store
from support.store_rows import count_points
from support.telemetry_load import Load

pytestmark = pytest.mark.xdist_group("job")

# Spark computes for a second at each, whatever there is to do.
TRIGGER = ("--trigger", "2s")

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"telemetry": 2}) as running:
        yield running


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[InfluxProcess]:
    if influxd_path() is None:
        pytest.skip("influxd is not installed (Debian package influxdb)")
    server = InfluxProcess(tmp_path / "influx").start()
    try:
        yield server
    finally:
        server.stop()


def grows(job: PipelineProcess) -> Callable[[dict[str, Any]], bool]:
    """A status with more points than now."""
    before = job.status().get("counts", {}).get("valid", 0)
    return lambda status: status.get("counts", {}).get("valid", 0) > before


def check_exactly_once(store: Store, load: Load) -> None:
    expected: dict[str, list[tuple[object, float]]] = {}
    for number in sorted(load.acknowledged):
        uuid, time, value = Load.point(number)
        expected.setdefault(uuid, []).append((time, value))
    assert count_points(store) == len(load.acknowledged)
    end = Load.START + timedelta(days=1)
    for uuid, points in expected.items():
        rows = store.telemetry(TelemetryQuery(uuid, Load.START, end, limit=100_000)).rows
        assert [(row.time, row.value) for row in rows] == points
    minutes = store.rollups(RollupQuery(Resolution.MINUTE, level=Level.FLEET, limit=10_000)).rows
    assert sum(row.count for row in minutes) == len(load.acknowledged), "rollups count every point once"


def run_through(
    job: PipelineProcess,
    broker: EmbeddedBroker,
    database: InfluxProcess | None = None,
    *,
    until_it_is_missed: bool = False,
) -> Load:
    """Load the pipeline and kill its driver, its broker and its database in turn; the load, when all is stored."""
    job.start()
    try:
        with Load(broker.bootstrap_servers, "telemetry") as load:
            job.wait_until(grows(job), "the first points")
            job.kill()
            job.start()
            job.wait_until(grows(job), "points after the driver was killed")
            broker.kill()
            broker.start()
            job.wait_until(grows(job), "points after the broker was killed")
            if database is not None:
                database.kill()
                if until_it_is_missed:
                    job.wait_until(
                        lambda status: "InfluxDB" in str(status["last_error"]), "a word about the database"
                    )
                else:
                    load.wait_for_more(2 * load.per_second)
                database.start()
                job.wait_until(grows(job), "points after the database was killed")
            load.finish()
        job.wait_until(lambda status: status["counts"]["valid"] >= load.records, "all records")
        # As Ctrl-C does it; Spark would have it otherwise.
        assert job.stop(signal.SIGINT) == 0, job.log_end()
    finally:
        job.kill()
    status = job.status()
    assert (status["state"], status["dirty_minutes"], status["dirty_hours"]) == ("stopped", 0, 0)
    assert status["counts"]["valid"] == load.records, "a replayed batch counts once"
    return load


def test_influx_and_parquet_after_killing_driver_broker_and_database(
    broker: EmbeddedBroker, influx: InfluxProcess, tmp_path: Path
) -> None:
    url = f"influx:{influx.url}?db=telemetry"
    job = PipelineProcess(tmp_path / "job", broker.bootstrap_servers, "--store", url, *TRIGGER)
    load = run_through(job, broker, influx)
    for each in (url, f"parquet:{job.data}/lake"):
        with opened_store(each, job.data) as store:
            check_exactly_once(store, load)


@pytest.mark.long
def test_influx_when_the_database_is_away_for_longer_than_it_is_waited_for(
    broker: EmbeddedBroker, influx: InfluxProcess, tmp_path: Path
) -> None:
    url = f"influx:{influx.url}?db=telemetry"
    job = PipelineProcess(tmp_path / "job", broker.bootstrap_servers, "--store", url, *TRIGGER)
    load = run_through(job, broker, influx, until_it_is_missed=True)
    with opened_store(url, job.data) as store:
        check_exactly_once(store, load)


@pytest.mark.long
def test_parquet_after_killing_driver_and_broker(broker: EmbeddedBroker, tmp_path: Path) -> None:
    job = PipelineProcess(tmp_path / "job", broker.bootstrap_servers, *TRIGGER)
    load = run_through(job, broker)
    with opened_store(f"parquet:{job.data}/store", job.data) as store:
        check_exactly_once(store, load)
