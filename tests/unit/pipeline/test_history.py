from datetime import UTC, datetime, timedelta
from pathlib import Path

from millstream.pipeline.history import KEPT, History, history_between

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_each_minute_has_its_rate_and_what_is_old_goes(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path, NOON, 1000)
    for second, handled in ((30, 1100), (60, 4000), (90, 9000), (120, 4000)):
        history.note(NOON + timedelta(seconds=second), handled, 7)
    with path.open("ab") as cut:
        cut.write(b'{"time": "2026-03')

    rows = history_between(path, None, None)
    assert [(row["time"][11:16], row["rows_per_second"], row["lag"]) for row in rows] == [
        ("12:00", 50.0, 7),
        ("12:01", 0.0, 7),
    ]
    assert history_between(path, NOON + timedelta(seconds=30), NOON + timedelta(minutes=5)) == rows[1:]

    later = NOON + KEPT + timedelta(seconds=30)
    History(path, later, 0)
    assert history_between(path, None, None) == rows[1:], (
        "a new run keeps what is not old, without the cut line"
    )
    assert history_between(None, None, None) == []
