"""Events stay right however the hours come: in order, late, twice."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.job.health.events import Run, Sign, gap_of
from millstream.pipeline.job.health.watch import HealthBook, HealthWatch
from millstream.pipeline.moments import MINUTE, hour_of, hour_start
from millstream.pipeline.stores.rows import Event, EventStatus, Severity

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = hour_of(NOON)
RULES = PipelineSettings()


def run(
    sign: Sign, first: datetime, minutes: int, *, uuid: str = "GPU-1", peak: float = 90.0, weight: int = 1,
    before: float | None = None,
) -> Run:  # fmt: skip
    final = first + (minutes - 1) * MINUTE
    return Run(sign, uuid, "host-1", first, final, minutes, peak, peak, before, weight)


def seen(events: Iterable[Event]) -> dict[str, Event]:
    """What a reader of the store sees after these changes."""
    latest = {event.event_id: event for event in events}
    return {key: event for key, event in latest.items() if event.status is not EventStatus.RETRACTED}


class Story:
    """A watch with its book, told hour by hour."""

    def __init__(self, directory: Path, rules: PipelineSettings = RULES) -> None:
        self.directory = directory
        self.watch = HealthWatch(HealthBook(directory), rules)
        self.told: list[Event] = []

    def hours(self, runs: Iterable[Run], watermark: datetime, hours: Iterable[int] = ()) -> list[Event]:
        by_hour: dict[int, list[Run]] = {hour: [] for hour in hours}
        for each in runs:
            by_hour.setdefault(hour_of(each.first), []).append(each)
        changes = self.watch.changes(by_hour, watermark)
        self.watch._book.save()
        self.told += changes
        return changes

    def restart(self) -> None:
        self.watch = HealthWatch(HealthBook(self.directory), RULES)


def test_a_hot_run_is_an_event_with_its_peak(tmp_path: Path) -> None:
    [event] = Story(tmp_path).hours([run(Sign.HEAT, NOON, 5, peak=93.0)], NOON + timedelta(hours=1))
    assert (event.kind, event.severity, event.status) == (
        "thermal_excursion", Severity.CRITICAL, EventStatus.CLOSED,
    )  # fmt: skip
    assert (event.start, event.end) == (NOON, NOON + 5 * MINUTE)
    assert '"peak_celsius":93.0' in event.evidence


def test_a_run_that_an_hour_cuts_is_one_event(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.hours([run(Sign.HEAT, NOON + 50 * MINUTE, 10)], NOON)
    story.hours([run(Sign.HEAT, NOON + 60 * MINUTE, 10)], NOON)
    [event] = seen(story.told).values()
    assert (event.start, event.end) == (NOON + 50 * MINUTE, NOON + 70 * MINUTE)


def test_a_late_hour_between_two_joins_their_events(tmp_path: Path) -> None:
    story = Story(tmp_path)
    late = [run(Sign.HEAT, NOON + 60 * MINUTE, 60)]
    story.hours([run(Sign.HEAT, NOON + 59 * MINUTE, 1), run(Sign.HEAT, NOON + 120 * MINUTE, 1)], NOON)
    assert len(seen(story.told)) == 2
    changes = story.hours(late, NOON)
    assert [event.status for event in changes] == [EventStatus.OPEN, EventStatus.RETRACTED]
    [event] = seen(story.told).values()
    assert event.end == NOON + 121 * MINUTE


def test_what_is_gone_is_retracted_and_may_come_back(tmp_path: Path) -> None:
    story = Story(tmp_path)
    hot = run(Sign.HEAT, NOON, 5)
    story.hours([hot], NOON)
    [gone] = story.hours([], NOON, hours=[HOUR])
    assert gone.status is EventStatus.RETRACTED
    story.hours([hot], NOON)
    assert len(seen(story.told)) == 1


def test_nothing_new_changes_nothing(tmp_path: Path) -> None:
    story = Story(tmp_path)
    runs = [run(Sign.HEAT, NOON, 5), run(Sign.PRESENCE, NOON, 60)]
    story.hours(runs, NOON + timedelta(minutes=30))
    assert story.hours(runs, NOON + timedelta(minutes=30)) == []


def test_an_open_event_closes_when_the_watermark_passes(tmp_path: Path) -> None:
    story = Story(tmp_path)
    [opened] = story.hours([run(Sign.POWER, NOON, 5, peak=900.0)], NOON)
    story.restart()
    [closed] = story.hours([], NOON + timedelta(hours=3))
    assert (opened.status, closed.status) == (EventStatus.OPEN, EventStatus.CLOSED)


def test_a_gpu_falls_silent_and_comes_back(tmp_path: Path) -> None:
    story = Story(tmp_path)
    assert story.hours([run(Sign.PRESENCE, NOON, 10)], NOON + 14 * MINUTE) == []
    [silent] = story.hours([], NOON + 16 * MINUTE)
    assert (silent.kind, silent.severity, silent.status) == ("silent_gpu", Severity.WARNING, EventStatus.OPEN)
    assert (silent.start, silent.end) == (NOON + 10 * MINUTE, NOON + 15 * MINUTE)
    assert story.hours([], NOON + 17 * MINUTE) == [], "an open silence does not change every time"
    story.restart()
    [critical] = story.hours([], NOON + 50 * MINUTE)
    assert critical.severity is Severity.CRITICAL
    [back] = story.hours([run(Sign.PRESENCE, NOON + 100 * MINUTE, 10)], NOON + 60 * MINUTE)
    assert (back.event_id, back.status, back.end) == (
        silent.event_id, EventStatus.CLOSED, NOON + 100 * MINUTE,
    )  # fmt: skip


def test_late_points_move_the_start_of_a_silence(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.hours([run(Sign.PRESENCE, NOON, 10)], NOON + 40 * MINUTE)
    story.hours([run(Sign.PRESENCE, NOON, 20)], NOON + 40 * MINUTE)
    [event] = seen(story.told).values()
    assert event.start == NOON + 20 * MINUTE


def test_a_gpu_that_was_away_for_long_is_a_new_one(tmp_path: Path) -> None:
    story = Story(tmp_path)
    later = NOON + timedelta(days=8)
    story.hours([run(Sign.PRESENCE, NOON, 10)], NOON)
    story.hours([run(Sign.PRESENCE, later, 10)], later)
    [event] = seen(story.told).values()
    assert event.status is EventStatus.OPEN


def test_a_collapse_needs_work_before_and_time(tmp_path: Path) -> None:
    story = Story(tmp_path)
    runs = [
        run(Sign.IDLE, NOON, 10, uuid="GPU-idle", before=3.0),
        run(Sign.IDLE, NOON, 2, uuid="GPU-short", before=90.0),
        run(Sign.IDLE, NOON, 4, uuid="GPU-collapsed", before=90.0),
    ]
    assert [event.uuid for event in story.hours(runs, NOON)] == ["GPU-collapsed"]


def test_a_burst_needs_several_errors(tmp_path: Path) -> None:
    story = Story(tmp_path)
    runs = [
        run(Sign.XID, NOON, 1, uuid="GPU-once", peak=13, weight=1),
        run(Sign.XID, NOON, 2, uuid="GPU-app", peak=31, weight=4),
        run(Sign.XID, NOON, 2, uuid="GPU-lost", peak=79, weight=4),
    ]
    severities = {event.uuid: event.severity for event in story.hours(runs, NOON)}
    assert severities == {"GPU-app": Severity.WARNING, "GPU-lost": Severity.CRITICAL}


@st.composite
def minutes_shown(draw: st.DrawFn) -> dict[tuple[Sign, str], set[int]]:
    """Minutes, of five hours, in which some GPUs show some signs."""
    tracks = st.tuples(
        st.sampled_from([Sign.HEAT, Sign.PRESENCE, Sign.XID]), st.sampled_from(["GPU-1", "GPU-2"])
    )
    edges = st.integers(0, 299)
    stretches = st.lists(st.tuples(edges, st.integers(1, 90)), min_size=1, max_size=4)
    return {
        track: {minute for start, length in found for minute in range(start, min(start + length, 300))}
        for track, found in draw(st.dictionaries(tracks, stretches, min_size=1)).items()
    }


def runs_of_hour(shown: dict[tuple[Sign, str], set[int]], hour: int) -> list[Run]:
    runs: list[Run] = []
    for (sign, uuid), minutes in shown.items():
        allowed = gap_of(sign, RULES) // MINUTE
        group: list[int] = []
        inside = sorted(minute for minute in minutes if minute // 60 == hour)
        for minute in [*inside, None]:
            if group and (minute is None or minute - group[-1] - 1 > allowed):
                first = NOON + group[0] * MINUTE
                last = NOON + group[-1] * MINUTE
                runs.append(Run(sign, uuid, "h", first, last, len(group), 90.0, 90.0, None, len(group)))
                group = []
            if minute is not None:
                group.append(minute)
    return runs


@settings(max_examples=60)
@given(
    minutes_shown(),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=8),
    st.permutations(range(5)),
)
def test_any_order_of_partial_hours_ends_in_the_same_events(
    shown: dict[tuple[Sign, str], set[int]], partial: list[tuple[int, float]], order: list[int]
) -> None:
    """Hours are first computed from some of their points, then from all of them, in any order."""
    watermark = NOON + timedelta(hours=5)
    with TemporaryDirectory() as clean_directory, TemporaryDirectory() as story_directory:
        clean, story = Story(Path(clean_directory)), Story(Path(story_directory))
        clean.hours(
            [each for hour in range(5) for each in runs_of_hour(shown, hour)], watermark, hours=range(5)
        )
        for hour, share in partial:
            some = {track: {m for m in minutes if m % 60 < 60 * share} for track, minutes in shown.items()}
            story.hours(runs_of_hour(some, hour), hour_start(HOUR + hour), hours=[hour + HOUR])
        for hour in order:
            story.hours(runs_of_hour(shown, hour), watermark, hours=[hour + HOUR])
        story.restart()
        story.hours([], watermark)
        assert seen(story.told) == seen(clean.told)
