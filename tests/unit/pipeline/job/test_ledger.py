"""The ledger forgets nothing that a crash could interrupt, and counts a replayed batch once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millstream.pipeline.files import DirectoryInUse, exclusive
from millstream.pipeline.job.ledger import Ledger, Summary
from millstream.pipeline.moments import minute_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = minute_of(NOON)
HOUR = MINUTE // 60
DELAY = timedelta(minutes=10)


def batch(*minutes: int, newest: datetime = NOON) -> Summary:
    return Summary({"valid": 5, "bad": 1}, {"empty": 1}, late=2, minutes=frozenset(minutes), newest=newest)


def test_marks_survive_a_restart(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.json", DELAY).record(0, batch(MINUTE, MINUTE + 60))
    again = Ledger(tmp_path / "ledger.json", DELAY)
    assert set(again.dirty_minutes()) == {MINUTE, MINUTE + 60}
    assert set(again.dirty_hours()) == {HOUR, HOUR + 1}
    assert again.watermark == NOON - DELAY


def test_a_replayed_batch_counts_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", DELAY)
    ledger.record(0, batch(MINUTE))
    ledger.record(1, batch(MINUTE))
    again = Ledger(tmp_path / "ledger.json", DELAY)
    again.record(1, batch(MINUTE))
    assert again.totals["valid"] == 10
    assert again.totals["reason:empty"] == 2


def test_a_window_marked_while_it_was_computed_stays_marked(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", DELAY)
    ledger.record(0, batch(MINUTE, MINUTE + 1))
    taken = ledger.dirty_minutes()
    ledger.record(1, batch(MINUTE))
    ledger.clear_minutes(taken)
    assert set(ledger.dirty_minutes()) == {MINUTE}


def test_computed_minutes_leave_their_hour_for_health(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", DELAY)
    ledger.record(0, batch(MINUTE))
    ledger.clear_minutes(ledger.dirty_minutes())
    assert ledger.dirty_health() == {HOUR}
    ledger.clear_health([HOUR])
    assert Ledger(tmp_path / "ledger.json", DELAY).dirty_health() == frozenset()


def test_the_watermark_never_goes_back(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", DELAY)
    ledger.record(0, batch(MINUTE))
    ledger.record(1, batch(MINUTE - 500, newest=NOON - timedelta(hours=9)))
    assert ledger.watermark == NOON - DELAY


def test_versions_only_grow(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", DELAY)
    assert [ledger.next_version(0), ledger.next_version(40), ledger.next_version(40)] == [1, 40, 41]


def test_a_directory_serves_one_process(tmp_path: Path) -> None:
    with exclusive(tmp_path), pytest.raises(DirectoryInUse, match="in use by another"), exclusive(tmp_path):
        pass
    with exclusive(tmp_path):
        pass
