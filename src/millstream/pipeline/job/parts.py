"""What a run and a backfill are made of, opened together in the directory of the job."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.declaration import DCGM, load_declaration
from millstream.pipeline.files import exclusive
from millstream.pipeline.job.health.book import HealthBook
from millstream.pipeline.job.health.model import Thresholds
from millstream.pipeline.job.health.publish import EventPublisher
from millstream.pipeline.job.ledger import Ledger
from millstream.pipeline.job.reasons import Limits
from millstream.pipeline.job.recompute import OnProgress, Recomputation, no_progress
from millstream.pipeline.stores.base import Store
from millstream.pipeline.stores.open import open_store, without_password

OTHER_PARTITIONS = 1
"""Of topics that are made because they are not there."""


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
        cls, settings: PipelineSettings, spark: SparkSession, on_progress: OnProgress = no_progress
    ) -> Iterator["Parts"]:
        """Raises DirectoryInUse when another process has the job's directory."""
        data = Path(settings.data)
        with exclusive(data):
            store = open_store(
                settings.store_url,
                data=data,
                influx_token=settings.influx_token or "",
                lake_retention=timedelta(milliseconds=settings.lake_retention),
            )
            publisher = EventPublisher(spark, store, settings.bootstrap, settings.events_topic)
            ledger = Ledger(data / "ledger.json", timedelta(milliseconds=settings.watermark_delay))
            recomputation = Recomputation(
                spark,
                store,
                ledger,
                HealthBook(data / "health"),
                publisher,
                Thresholds.of(settings),
                on_progress,
            )
            try:
                yield cls(
                    store, without_password(settings.store_url), ledger, recomputation, limits_of(settings),
                    (data / "checkpoint").absolute().as_uri(),
                )  # fmt: skip
            finally:
                publisher.close()
                store.close()


def limits_of(settings: PipelineSettings) -> Limits:
    """Raises ValueError when `earliest_time` is not a time, or the declaration cannot be used."""
    earliest = datetime.fromisoformat(settings.earliest_time)
    if earliest.tzinfo is None:
        raise ValueError(f"earliest_time {settings.earliest_time!r} has no zone; write 2000-01-01T00:00:00Z")
    declared = DCGM if settings.declaration is None else load_declaration(Path(settings.declaration))
    return Limits(settings.max_record_size, earliest, timedelta(milliseconds=settings.max_ahead), declared)
