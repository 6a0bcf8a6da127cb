"""The parts of a run or a backfill, opened together in the directory of the job."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.declaration import DCGM, load_declaration
from millstream.pipeline.files import exclusive
from millstream.pipeline.job.health.watch import HealthBook
from millstream.pipeline.job.judge import Limits
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.recompute import EventPublisher, OnProgress, Recomputation
from millstream.pipeline.moments import duration
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.open import open_store, without_password
from millstream.spark import session

OTHER_PARTITIONS = 1
"""The number of partitions of topics that the job creates."""


@dataclass(frozen=True, slots=True)
class Parts:
    store: Store
    store_name: str
    ledger: Ledger
    recomputation: Recomputation
    limits: Limits
    checkpoint: str

    @classmethod
    @contextmanager
    def opened(
        cls, settings: PipelineSettings, spark: SparkSession, on_progress: OnProgress = lambda *_: None
    ) -> Iterator["Parts"]:
        """Open all parts. Raises DirectoryInUse when another process uses the job's directory."""
        data = Path(settings.data)
        with exclusive(data):
            store = open_store(
                settings.store_url,
                data=data,
                influx_token=settings.influx_token or "",
                lake_retention=duration(settings.lake_retention),
            )
            publisher = EventPublisher(spark, store, settings.bootstrap, settings.events_topic)
            ledger = Ledger(data / "ledger.json", duration(settings.watermark_delay))
            book = HealthBook(data / "health")
            recomputation = Recomputation(spark, store, ledger, book, publisher, settings, on_progress)
            try:
                yield cls(
                    store, without_password(settings.store_url), ledger, recomputation, limits_of(settings),
                    (data / "checkpoint").absolute().as_uri(),
                )  # fmt: skip
            finally:
                publisher.close()
                store.close()


def limits_of(settings: PipelineSettings) -> Limits:
    """The limits in the settings. Raises ValueError if `earliest_time` is not a time or the declaration is unusable."""
    earliest = datetime.fromisoformat(settings.earliest_time)
    if earliest.tzinfo is None:
        raise ValueError(f"earliest_time {settings.earliest_time!r} has no zone; write 2000-01-01T00:00:00Z")
    declared = DCGM if settings.declaration is None else load_declaration(Path(settings.declaration))
    return Limits(settings.max_record_size, earliest, duration(settings.max_ahead), declared)


def open_session(
    name: str, master: str, settings: Mapping[str, str], *, verbose: bool = False
) -> SparkSession:
    """A Spark session with the settings of `spark-defaults.conf`, which `settings` override."""
    lines = files(__package__).joinpath("spark-defaults.conf").read_text().splitlines()
    ours = dict(line.split() for line in lines if line and not line.startswith("#"))
    ours["spark.sql.shuffle.partitions"] = str(max(2, min(os.cpu_count() or 2, 8)))
    spark = session(app_name=name, master=master, config={**ours, **settings})
    # The command reports failures in one line; Spark's own report is pages long.
    spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")
    return spark
