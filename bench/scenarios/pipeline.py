"""Rows per second through the pipeline's own batch: typed, judged, stored, and rolled up.

Into Parquet from a topic and from text files with the same records, in turn. Into InfluxDB from a topic, next to one
process that posts lines made beforehand and does nothing else.
"""

import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import Durability, PeerError
from bench.scenarios.pipeline_names import (
    BAD_SHARES,
    INFLUX,
    INFLUX_DIRECT,
    INFLUX_RATIO,
    PARQUET,
    PARQUET_FROM_TEXT,
    PARQUET_RATIO,
    bad_name,
)
from bench.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bench.peers.millstream import Millstream
    from bench.scenarios.pipeline_influx import Influx
    from millstream.pipeline.stores.base import Store

NAME = "pipeline"
_FULL_ROWS, _QUICK_ROWS = 1_000_000, 60_000


def run(session: Session) -> None:
    try:
        from bench.scenarios import pipeline_data, pipeline_influx
        from millstream.pipeline.job.parts import open_session

        spark = open_session("bench-pipeline", "local[2]", {})
    except ImportError as missing:
        session.skip(NAME, "all of it", f"the extra `pipeline` is not installed ({missing})")
        return
    try:
        with session.millstream() as broker, session.data_directory() as directory:
            rows = _QUICK_ROWS if session.plan.quick else _FULL_ROWS
            session.display.step(f"writing {rows:,} records")
            topic = session.unique("telemetry")
            broker.create_topic(topic, pipeline_data.PARTITIONS, Durability.RELAXED)
            pipeline_data.fill(broker.bootstrap, topic, directory / "text", rows)
            bench = _Bench(session, spark, broker.bootstrap, topic, directory, rows)
            bench.parquet()
            bench.bad_input(broker)
            if not pipeline_influx.is_available():
                session.skip(NAME, INFLUX, "influxd is not installed")
                return
            (directory / "influx").mkdir()
            with pipeline_influx.running(directory / "influx") as influx:
                bench.influx(influx)
    finally:
        spark.stop()


class _Bench:
    def __init__(
        self, session: Session, spark: "SparkSession", bootstrap: str, topic: str, directory: Path, rows: int
    ) -> None:
        self._session, self._spark = session, spark
        self._bootstrap, self._topic, self._directory = bootstrap, topic, directory
        self._rows = rows
        self._rounds = session.plan.rounds_of(full=5, quick=2)

    def parquet(self) -> None:
        rates: dict[str, list[float]] = {PARQUET: [], PARQUET_FROM_TEXT: []}
        for number in range(self._rounds + 1):
            for name, values in rates.items():
                self._session.display.step(f"{name}, round {number} of {self._rounds}")
                rate = self._rate_to_parquet(self._from_topic() if name == PARQUET else self._from_text())
                # The first round starts workers and lets the JVM compile.
                if number:
                    values.append(rate)
        self._record(rates, PARQUET_RATIO)

    def bad_input(self, broker: "Millstream") -> None:
        """Records of which every so many is cut off: all of these must be letters, all others points."""
        from bench.scenarios import pipeline_data

        rows = self._rows // 5
        for share in BAD_SHARES:
            topic = self._session.unique("bad")
            broker.create_topic(topic, pipeline_data.PARTITIONS, Durability.RELAXED)
            bad = pipeline_data.fill_bad(self._bootstrap, topic, rows, share)
            rates = []
            for number in range(self._rounds + 1):
                self._session.display.step(f"{bad_name(share)}, round {number} of {self._rounds}")
                with self._session.data_directory() as directory:
                    store = _open(f"parquet:{directory / 'store'}", directory)
                    began = time.perf_counter()
                    letters = _process(self._from_topic(topic), store)
                    rate = rows / (time.perf_counter() - began)
                    stored = store.count_points()
                    store.close()
                if (letters, stored) != (bad, rows - bad):
                    raise PeerError(
                        f"{letters:,} letters and {stored:,} points of {bad:,} bad and {rows:,} records"
                    )
                if number:
                    rates.append(rate)
            self._session.record_figure(NAME, bad_name(share), "rows/s", rates)

    def influx(self, influx: "Influx") -> None:
        from bench.scenarios import pipeline_influx

        bodies = pipeline_influx.bodies(self._rows)
        rates: dict[str, list[float]] = {INFLUX: [], INFLUX_DIRECT: []}
        for number in range(self._rounds + 1):
            for name, values in rates.items():
                self._session.display.step(f"{name}, round {number} of {self._rounds}")
                database = self._session.unique("bench").replace("-", "_")
                influx.execute(f"CREATE DATABASE {database}")
                if name == INFLUX:
                    rate = self._rate_to_influx(influx.store_url(database))
                else:
                    rate = self._rows / influx.post(database, bodies)
                influx.execute(f"DROP DATABASE {database}")
                if number:
                    values.append(rate)
        self._record(rates, INFLUX_RATIO)

    def _record(self, rates: dict[str, list[float]], ratio: str) -> None:
        for name, values in rates.items():
            self._session.record_figure(NAME, name, "rows/s", values)
        ours, theirs = rates.values()
        self._session.record_figure(NAME, ratio, "", [a / b for a, b in zip(ours, theirs, strict=True)])

    def _rate_to_parquet(self, records: "DataFrame") -> float:
        from bench.scenarios import pipeline_data
        from millstream.pipeline.job.rollups import rollups_of
        from millstream.pipeline.moments import micros
        from millstream.pipeline.stores.rows import Resolution

        start = datetime.fromtimestamp(pipeline_data.START_MS / 1000, UTC)
        end = datetime.fromtimestamp(pipeline_data.last_ms(self._rows) / 1000, UTC) + timedelta(minutes=1)
        minutes = range(micros(start) // 60_000_000, micros(end) // 60_000_000)
        with self._session.data_directory() as directory:
            store = _open(f"parquet:{directory / 'store'}", directory)
            began = time.perf_counter()
            _process(records, store)
            points = store.points_frame(self._spark, start, end)
            store.write_rollups(rollups_of(points, Resolution.MINUTE, minutes), 1)
            seconds = time.perf_counter() - began
            self._check(store)
            store.close()
        return self._rows / seconds

    def _rate_to_influx(self, url: str) -> float:
        with self._session.data_directory() as directory:
            store = _open(url, directory)
            began = time.perf_counter()
            _process(self._from_topic(), store)
            seconds = time.perf_counter() - began
            self._check(store)
            store.close()
            shutil.rmtree(directory / "lake", ignore_errors=True)
        return self._rows / seconds

    def _check(self, store: "Store") -> None:
        stored = store.count_points()
        if stored != self._rows:
            raise PeerError(f"{stored:,} of {self._rows:,} points are in the store")

    def _from_topic(self, topic: str | None = None) -> "DataFrame":
        """Typed records of the topic, as a backfill of all of it takes them."""
        from millstream.config.pipeline_settings import PipelineSettings
        from millstream.pipeline.job.dataflow import telemetry_since
        from millstream.pipeline.job.judge import Limits

        settings = PipelineSettings(bootstrap=self._bootstrap, topic=topic or self._topic)
        return telemetry_since(self._spark, settings, datetime.fromtimestamp(0, UTC), Limits())

    def _from_text(self) -> "DataFrame":
        """Lines with the columns of the topic, read as one would without it: by `from_json`."""
        from pyspark.sql import functions as f

        from millstream.pipeline.job.judge import Limits, record_type, typed_fields

        records = self._spark.read.text(str(self._directory / "text")).select(
            f.lit(None).cast("binary").alias("key"),
            f.from_json("value", record_type()).alias("value"),
            f.col("value").cast("binary").alias("serializedValue"),
            f.lit(self._topic).alias("topic"),
            f.lit(0).alias("partition"),
            f.monotonically_increasing_id().alias("offset"),
            f.current_timestamp().alias("timestamp"),
        )
        return typed_fields(records, Limits())


def _open(url: str, directory: Path) -> "Store":
    from millstream.pipeline.stores.open import open_store

    return open_store(url, data=directory)


def _process(records: "DataFrame", store: "Store") -> int:
    """One micro-batch, as `millstream pipeline run` treats it; how many records were dead letters."""
    from millstream.pipeline.job.dataflow import Dataflow
    from millstream.pipeline.job.judge import Limits

    counted: list[int] = []
    dataflow = Dataflow(store, Limits(), lambda letters: counted.append(letters.count()))
    dataflow.process(records, 0, None)
    return sum(counted)
