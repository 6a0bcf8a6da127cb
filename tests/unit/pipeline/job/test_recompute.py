"""What was marked is computed, or stays marked, wherever the store or the cluster fails. Spark and the store are not
needed for that: what they would be asked is put in their place."""

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.client import ClientError
from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job import backfill as backfilling
from millstream.pipeline.job import recompute
from millstream.pipeline.job.backfill import BackfillSource
from millstream.pipeline.job.dataflow import Stored
from millstream.pipeline.job.health.events import Run, Sign
from millstream.pipeline.job.health.watch import HealthBook
from millstream.pipeline.job.ledger import Ledger, Summary
from millstream.pipeline.job.recompute import EventPublisher, Recomputation
from millstream.pipeline.moments import hour_of, hour_start, minute_of

MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
LAST_HOUR, NEXT_HOUR = hour_of(MIDNIGHT) - 1, hour_of(MIDNIGHT)


class Store:
    def points_frame(self, *_: object) -> None:
        raise OSError("the store is away")

    def rollups_frame(self, *_: object) -> None:
        return None

    def write_events(self, *_: object) -> None:
        return None

    def last_version(self) -> int:
        return 0


def test_hours_of_the_next_day_stay_marked_until_they_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    failing = {NEXT_HOUR}

    def runs_of(_: object, hours: Iterable[int], __: PipelineSettings) -> list[Run]:
        wanted = list(hours)
        if failing & set(wanted):
            raise OSError("the store is away")
        computed.extend(wanted)
        return []

    monkeypatch.setattr(recompute, "runs_of", runs_of)
    ledger = Ledger(tmp_path / "ledger.json", timedelta(minutes=10))
    book = HealthBook(tmp_path / "health")
    there = hour_start(NEXT_HOUR)
    book.put_runs(NEXT_HOUR, [Run(Sign.PRESENCE, "GPU-1", "h", there, there, 1, 1.0, 1.0, None, 1)])
    book.save()
    ledger.mark([minute_of(hour_start(LAST_HOUR))], hour_start(NEXT_HOUR + 1))
    ledger.clear_minutes(ledger.dirty_minutes())
    parts: Any = (None, Store(), ledger, book, EventPublisher(None, Store(), "127.0.0.1:1", "events"))  # type: ignore[arg-type]
    monkeypatch.setattr(EventPublisher, "publish", lambda *_: None)
    recomputation = Recomputation(*parts, PipelineSettings())

    with pytest.raises(OSError, match="away"):
        recomputation.health()
    assert computed == [LAST_HOUR]
    failing.clear()
    recomputation.health()
    assert computed == [LAST_HOUR, LAST_HOUR, NEXT_HOUR]
    assert ledger.dirty_health() == frozenset()


def test_events_are_sent_by_another_producer_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class FailingProducer:
        def __init__(self, _: object) -> None:
            self.is_closed = False
            made.append(self)

        def send_batch(self, _: object) -> None:
            if len(made) == 1:
                raise ClientError("it is fenced")

        def close(self) -> None:
            self.is_closed = True

    monkeypatch.setattr(recompute, "Producer", FailingProducer)
    monkeypatch.setattr(recompute, "local_frame", lambda *_: None)
    store: Any = Store()
    publisher = EventPublisher(None, store, "127.0.0.1:1", "events")  # type: ignore[arg-type]
    with pytest.raises(ClientError):
        publisher.publish([], 1)
    publisher.publish([], 2)
    assert [each.is_closed for each in made] == [True, False]


def test_what_a_backfill_has_stored_is_marked_before_the_store_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "ledger.json", timedelta(minutes=10))
    parts = SimpleNamespace(store=Store(), ledger=ledger)
    stored = Stored(Summary(minutes=frozenset({minute_of(MIDNIGHT)}), newest=MIDNIGHT))
    monkeypatch.setattr(backfilling.Parts, "opened", lambda *_: contextlib.nullcontext(parts))
    monkeypatch.setattr(backfilling, "_read_log", lambda *_: stored)
    spark: Any = None
    with pytest.raises(OSError, match="away"):
        backfilling.backfill(
            spark, PipelineSettings(), MIDNIGHT, MIDNIGHT, BackfillSource.LOG, lambda *_: None
        )
    again = Ledger(tmp_path / "ledger.json", timedelta(minutes=10))
    assert set(again.dirty_minutes()) == {minute_of(MIDNIGHT)}
    assert again.newest == MIDNIGHT
