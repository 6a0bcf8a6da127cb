"""What `millstream pipeline` makes of its options."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from millstream.cli.errors import CommandError, UsageError
from millstream.cli.pipeline_options import (
    check_places,
    parse_moment,
    parse_range,
    pipeline_settings,
    require,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_time_or_how_long_ago() -> None:
    assert parse_moment("2026-03-01T13:00:00+01:00", "--from", NOW) == NOW
    assert parse_moment("6h", "--from", NOW) == NOW - timedelta(hours=6)


@pytest.mark.parametrize("text", ["yesterday", "2026-03-01", "2026-03-01T13:00:00", "6 parsecs"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"--from '.*' is neither a time"):
        parse_moment(text, "--from", NOW)


def test_a_range_needs_a_start_before_its_end() -> None:
    with pytest.raises(UsageError, match="--from is missing"):
        parse_range(None, None)
    with pytest.raises(UsageError, match="--from 1h is after --to 2h"):
        parse_range("1h", "2h")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "millstream.yaml"
    file.write_text("pipeline: {topic: from-file, trigger: 3s, data: here}")
    settings = pipeline_settings(file, topic="from-flag", trigger=None, data=tmp_path)
    assert (settings.topic, settings.trigger, settings.data) == ("from-flag", 3000, str(tmp_path))


def test_a_wrong_earliest_time_is_named(tmp_path: Path) -> None:
    file = tmp_path / "millstream.yaml"
    file.write_text("pipeline: {earliest_time: long ago}")
    with pytest.raises(CommandError, match=r"pipeline\.earliest_time is 'long ago'"):
        pipeline_settings(file)


def test_an_api_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"there is no store at .*/mistyped/store; name the directory"):
        check_places(pipeline_settings(None, data=tmp_path / "mistyped"))
    with pytest.raises(CommandError, match=r"there is no store at .*/typo"):
        check_places(pipeline_settings(None, data=tmp_path, store=f"parquet:{tmp_path}/typo?retention=1d"))
    # A job that has begun there and has stored nothing yet.
    check_places(pipeline_settings(None, data=tmp_path))
    check_places(pipeline_settings(None, data=tmp_path / "none", store="influx:http://localhost:8086?db=x"))


def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CommandError, match=r"needs duckdb.*pip install '\.\[pipeline\]'"):
        require("sys", "duckdb")
