"""Somebody who follows a document goes on when there is what the next command needs."""

from datetime import UTC, datetime
from pathlib import Path

from docs.following import has_rollups
from millstream.pipeline.stores.parquet.layout import MINUTES_ROOM
from support.fleet_api import points, rollups
from support.store_rows import put


def test_a_store_of_points_alone_has_no_rollups(tmp_path: Path) -> None:
    now, store = datetime.now(UTC), tmp_path / "store"
    assert not has_rollups(store)
    put(store, list(points(now)))
    assert not has_rollups(store)
    put(store, list(rollups(now)), room=MINUTES_ROOM)
    assert has_rollups(store)
