"""Rows per second of the Spark source: to noop, to Parquet, with parsing and rollups; next to what else Spark can read.

The sources take turns in one session. Spark's own connector joins where its jars are: in the directory that
MILLSTREAM_TEST_SPARK_KAFKA_JARS names, or where `make java` has put them.
"""

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers import Durability
from bench.scenarios import spark_data
from bench.scenarios.spark_names import Source, Work, spark_name, spark_ratio
from bench.session import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "spark"
_FULL_ROWS, _QUICK_ROWS = 1_000_000, 100_000
_FETCHED = Path(__file__).resolve().parents[2] / ".stamps" / "spark-jars"
_JARS = os.environ.get("MILLSTREAM_TEST_SPARK_KAFKA_JARS") or (str(_FETCHED) if _FETCHED.is_dir() else None)
_CONTENDERS = {
    Work.NOOP: (Source.MILLSTREAM, Source.CONNECTOR, Source.TEXT),
    Work.TYPED: (Source.MILLSTREAM, Source.CONNECTOR, Source.TEXT),
    Work.PARQUET: (Source.MILLSTREAM, Source.TEXT),
    Work.ROLLUPS: (Source.MILLSTREAM, Source.TEXT),
}


def run(session: Session) -> None:
    try:
        from millstream.spark import session as spark_session

        spark = spark_session("bench", "local[2]", _config())
    except ImportError as missing:
        session.skip(NAME, "all of it", f"the extra `spark` is not installed ({missing})")
        return
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with session.millstream() as broker, session.data_directory() as directory:
            rows = _QUICK_ROWS if session.plan.quick else _FULL_ROWS
            session.display.step(f"writing {rows:,} records")
            topic = session.unique("spark")
            broker.create_topic(topic, spark_data.PARTITIONS, Durability.RELAXED)
            spark_data.fill(broker.bootstrap, topic, directory / "text", rows)
            if _JARS is None:
                session.skip(NAME, Source.CONNECTOR.value, "its jars are not here; `make java` fetches them")
            _Bench(session, spark, broker.bootstrap, topic, directory, rows).run()
    finally:
        spark.stop()


def _config() -> dict[str, str]:
    config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    if _JARS is not None:
        config["spark.jars"] = ",".join(str(jar) for jar in sorted(Path(_JARS).glob("*.jar")))
    return config


class _Bench:
    def __init__(
        self, session: Session, spark: "SparkSession", bootstrap: str, topic: str, directory: Path, rows: int
    ) -> None:
        self._session, self._spark = session, spark
        self._bootstrap, self._topic, self._directory = bootstrap, topic, directory
        self._rows = rows

    def run(self) -> None:
        for work, sources in _CONTENDERS.items():
            taking_part = [
                source for source in sources if source is not Source.CONNECTOR or _JARS is not None
            ]
            rates: dict[Source, list[float]] = {source: [] for source in taking_part}
            rounds = self._session.plan.rounds_of(full=5, quick=2)
            for number in range(rounds + 1):
                for source in taking_part:
                    self._session.display.step(f"{source.value} {work.value}, round {number} of {rounds}")
                    rate = self._rate(source, work)
                    # The first round starts workers and lets the JVM compile.
                    if number:
                        rates[source].append(rate)
            self._record(work, rates)

    def _record(self, work: Work, rates: dict[Source, list[float]]) -> None:
        for source, values in rates.items():
            self._session.record_figure(NAME, spark_name(source, work), "rows/s", values)
            if source is not Source.MILLSTREAM:
                ratios = [
                    ours / theirs for ours, theirs in zip(rates[Source.MILLSTREAM], values, strict=True)
                ]
                self._session.record_figure(NAME, spark_ratio(work, source), "", ratios)

    def _rate(self, source: Source, work: Work) -> float:
        began = time.perf_counter()
        if work in (Work.NOOP, Work.TYPED):
            frame = self._load(source) if work is Work.NOOP else self._typed(source)
            frame.write.format("noop").mode("overwrite").save()
            return self._rows / (time.perf_counter() - began)
        target = self._directory / "out"
        frame = self._rollups(self._typed(source)) if work is Work.ROLLUPS else self._load(source)
        frame.write.mode("overwrite").parquet(str(target))
        seconds = time.perf_counter() - began
        shutil.rmtree(target)
        return self._rows / seconds

    def _load(self, source: Source) -> "DataFrame":
        if source is Source.TEXT:
            return self._spark.read.text(str(self._directory / "text"))
        reader = self._spark.read.format("millstream" if source is Source.MILLSTREAM else "kafka")
        return (
            reader.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", self._topic).load()
        )

    def _typed(self, source: Source) -> "DataFrame":
        """The fields of the records as columns: decoded by our source, parsed by Spark from the others."""
        from pyspark.sql import functions as f

        if source is Source.MILLSTREAM:
            reader = self._spark.read.format("millstream").option("kafka.bootstrap.servers", self._bootstrap)
            typed = reader.option("subscribe", self._topic).option("value.format", "json")
            return typed.schema(f"value struct<{spark_data.FIELDS}>").load().select("value.*")
        parsed = f.from_json(f.col("value").cast("string"), spark_data.SCHEMA)
        return self._load(source).select(parsed.alias("r")).select("r.*")

    def _rollups(self, parsed: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as f

        grouped = parsed.groupBy(f.window("time", "1 minute"), "uuid", "metric")
        return grouped.agg(f.min("value"), f.max("value"), f.avg("value"), f.count("value"))
