from itertools import islice
from pathlib import Path

import pytest

from millstream.cli.errors import UsageError
from millstream.cli.telemetry_options import StreamOptions, duration_ms, moment_ms, parse_share
from millstream.pipeline.fleet import Share
from millstream.pipeline.record import RecordForm
from millstream.pipeline.sources import Timestamps
from support.telemetry import csv_of_a_fleet

CSV = Path("dcgm.csv")
NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (StreamOptions(csv=CSV, hosts=3), "--hosts is an option of a simulated fleet"),
        (StreamOptions(csv=CSV, since="2h"), "--since is an option of a simulated fleet"),
        (StreamOptions(loops=3), "--loops is an option of a CSV file"),
        (StreamOptions(timestamps=Timestamps.NOW), "--timestamps is an option of a CSV file"),
        (StreamOptions(csv=CSV, speed=2.0), "--speed needs --replay"),
        (StreamOptions(csv=CSV, replay=True, rate=5.0), "leave out --rate"),
        (StreamOptions(follow=True), "--follow needs --since"),
        (StreamOptions(until="1h"), "--until needs --since"),
        (StreamOptions(since="2h", until="1h", follow=True), "leave out --until"),
        (StreamOptions(rate=5.0, interval="1s"), "leave out --interval"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: StreamOptions, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        options.check()


@pytest.mark.parametrize(
    "options",
    [
        StreamOptions(),
        StreamOptions(rate=5.0),
        StreamOptions(hosts=3, interval="1s", since="2h", rate=100.0),
        StreamOptions(since="2h", follow=True),
        StreamOptions(csv=CSV, rate=5.0, loops=3, timestamps=Timestamps.ORIGINAL),
        StreamOptions(csv=CSV, replay=True, speed=3.0, loops=2),
    ],
)
def test_options_that_go_together_are_accepted(options: StreamOptions) -> None:
    options.check()


def times_of(options: StreamOptions, points: int) -> list[float]:
    bursts = options.bursts("t", RecordForm.FLAT, Share(), print)
    dues: list[float] = []
    for burst in bursts:
        dues += [burst.due_s] * len(burst.records)
        if len(dues) >= points:
            break
    return dues


def test_a_fleet_makes_as_many_points_a_second_as_asked_for() -> None:
    dues = times_of(StreamOptions(hosts=4, rate=2_000.0, faults=0), 10_000)
    assert dues[-1] == pytest.approx(5.0, abs=0.1)


def test_a_rate_that_the_fleet_cannot_reach_is_refused() -> None:
    with pytest.raises(UsageError, match="use more --hosts"):
        times_of(StreamOptions(hosts=1, rate=1e6), 1)


@pytest.mark.parametrize(
    ("given", "is_moved"),
    [
        ({"loops": 1}, False),
        ({"replay": True}, False),
        ({}, True),
        ({"loops": 2}, True),
        ({"loops": 1, "timestamps": Timestamps.NOW}, True),
        ({"loops": 2, "timestamps": Timestamps.ORIGINAL}, False),
    ],
)
def test_times_are_moved_when_the_file_is_read_more_than_once(
    tmp_path: Path, given: dict[str, object], is_moved: bool
) -> None:
    path = tmp_path / "dcgm.csv"
    path.write_text(csv_of_a_fleet())
    burst = next(StreamOptions(csv=path, **given).bursts("t", RecordForm.FLAT, Share(), print))
    assert (b"2025-07-18T20:42" not in burst.records[0].value) == is_moved


def test_the_past_ends_at_the_present_unless_it_is_followed() -> None:
    past = list(StreamOptions(hosts=1, since="1m", faults=0).bursts("t", RecordForm.FLAT, Share(), print))
    assert len(past) == 6 * 8
    followed = StreamOptions(hosts=1, since="1m", faults=0, follow=True)
    assert len(list(islice(followed.bursts("t", RecordForm.FLAT, Share(), print), 100))) == 100


def test_a_past_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing lies between"):
        StreamOptions(since="1h", until="2h").bursts("t", RecordForm.FLAT, Share(), print)


def test_moments_are_times_or_how_long_ago() -> None:
    assert moment_ms("2h", "--since", NOW_MS) == NOW_MS - 7_200_000
    assert moment_ms("2026-03-01T00:00:00Z", "--since", NOW_MS) == 1_772_323_200_000


@pytest.mark.parametrize("text", ["soon", "", "5", "2026-03-01T00:00:00", "0s", "-5s"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        moment_ms(text, "--since", NOW_MS)


def test_durations_need_a_unit() -> None:
    assert duration_ms("90s", "--duration") == 90_000
    with pytest.raises(UsageError, match="--duration '90' has no unit"):
        duration_ms("90", "--duration")


def test_instances() -> None:
    assert parse_share("2/3") == Share(2, 3)
    with pytest.raises(UsageError, match="--instance '4/3'"):
        parse_share("4/3")
