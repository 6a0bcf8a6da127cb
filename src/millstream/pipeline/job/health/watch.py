"""Keeps events right while hours change: finds the tracks of a changed hour, their present events, and the differences.

An event of a track depends only on the track's runs in neighbouring hours. So for a changed hour it is enough to follow
its tracks to the ends of their runs, both for its new runs and for its old ones. Events that are still open, and the
last sign of life of each GPU, are checked every time, because newer points may end them.

The state of each hour is in a file, `<data>/health/2025-07-18T20.json`, with a few dozen bytes per GPU: the hour's
runs, and the events that began in it as last published.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.files import write_whole
from millstream.pipeline.job.health.events import (
    EVENT_OF_SIGN,
    FORGOTTEN_AFTER,
    SILENT_GPU,
    Run,
    Sign,
    event_of,
    gap_of,
    joined,
    silence_after,
)
from millstream.pipeline.moments import HOUR, hour_of, hour_start
from millstream.pipeline.stores.rows import Event, EventStatus

_HOURS_IN_MEMORY = 400
_FORGOTTEN_HOURS = FORGOTTEN_AFTER // HOUR + 1
_SIGN_OF_EVENT = {kind: sign for sign, kind in EVENT_OF_SIGN.items()}

Track = tuple[Sign, str]
"""A sign of a GPU, by uuid."""


class _Stored(msgspec.Struct):
    runs: list[Run]
    events: list[Event]


class HourPage:
    def __init__(self, runs: Iterable[Run] = (), events: Iterable[Event] = ()) -> None:
        self.runs: dict[Track, list[Run]] = {}
        """In order of time."""
        for run in sorted(runs, key=lambda run: (run.sign, run.uuid, run.first)):
            self.runs.setdefault((run.sign, run.uuid), []).append(run)
        self.events = {event.event_id: event for event in events}
        """All events by id, including retracted ones, so that a recurring event is recognised."""


class HealthBook:
    """The stored runs and events of all hours. Keeps the most recently used hours in memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._pages: OrderedDict[int, HourPage] = OrderedDict()
        self._unsaved: set[int] = set()
        names = (path.stem for path in directory.glob("????-??-??T??.json"))
        self._known = sorted(
            hour_of(datetime.strptime(name, "%Y-%m-%dT%H").replace(tzinfo=UTC)) for name in names
        )

    def hours(self, first: int, last: int) -> list[int]:
        """The hours from `first` to `last` (inclusive) that have a page in the book."""
        return self._known[bisect_left(self._known, first) : bisect_right(self._known, last)]

    def page(self, hour: int) -> HourPage:
        page = self._pages.get(hour)
        if page is None:
            if not self.hours(hour, hour):
                return HourPage()
            stored = msgspec.json.decode(self._path(hour).read_bytes(), type=_Stored)
            page = self._pages[hour] = HourPage(stored.runs, stored.events)
            self._forget_old()
        self._pages.move_to_end(hour)
        return page

    def runs(self, hour: int, track: Track) -> list[Run]:
        return self.page(hour).runs.get(track, [])

    def put_runs(self, hour: int, runs: Iterable[Run]) -> None:
        """Replace the runs of an hour."""
        self._put(hour, HourPage(runs, self.page(hour).events.values()))

    def put_event(self, hour: int, event: Event) -> None:
        page = self.page(hour)
        page.events[event.event_id] = event
        self._put(hour, page)

    def save(self) -> None:
        """Write all changes to disk, durably."""
        for hour in sorted(self._unsaved):
            page = self._pages[hour]
            runs = [run for found in page.runs.values() for run in found]
            write_whole(self._path(hour), msgspec.json.encode(_Stored(runs, [*page.events.values()])))
        self._unsaved.clear()
        self._forget_old()

    def discard(self) -> None:
        """Drop changes that were not saved."""
        for hour in self._unsaved:
            self._pages.pop(hour, None)
            if not self._path(hour).exists():
                self._known.remove(hour)
        self._unsaved.clear()

    def _put(self, hour: int, page: HourPage) -> None:
        if not self.hours(hour, hour):
            insort(self._known, hour)
        self._pages[hour] = page
        self._pages.move_to_end(hour)
        self._unsaved.add(hour)

    def _path(self, hour: int) -> Path:
        return self._directory / f"{hour_start(hour):%Y-%m-%dT%H}.json"

    def _forget_old(self) -> None:
        old = [hour for hour in self._pages if hour not in self._unsaved]
        for hour in old[: max(0, len(self._pages) - _HOURS_IN_MEMORY)]:
            del self._pages[hour]


@dataclass(frozen=True, slots=True)
class _Settled:
    """The check of a track: its former and present events, each with the hour that stores it."""

    earlier: dict[str, tuple[int, Event]]
    present: dict[str, tuple[int, Event]]

    def differences(self) -> Iterator[tuple[int, Event]]:
        for event_id, (hour, event) in self.present.items():
            if event_id not in self.earlier or self.earlier[event_id][1] != event:
                yield hour, event
        for event_id, (hour, event) in self.earlier.items():
            if event_id not in self.present and event.status is not EventStatus.RETRACTED:
                yield hour, msgspec.structs.replace(event, status=EventStatus.RETRACTED)


class HealthWatch:
    def __init__(self, book: HealthBook, rules: PipelineSettings) -> None:
        self._book = book
        self._rules = rules
        self._open: dict[Track, set[int]] | None = None

    def changes(self, runs_by_hour: Mapping[int, Iterable[Run]], newest: datetime) -> list[Event]:
        """Replace the runs of these hours; returns the events that are new, changed or retracted by that.

        The book then holds the new runs and events: publish the events and save the book, or call `forget`.
        """
        looked_at = self._still_open(newest)
        for hour, runs in sorted(runs_by_hour.items()):
            looked_at |= {(track, hour) for track in self._book.page(hour).runs}
            self._book.put_runs(hour, runs)
            looked_at |= {(track, hour) for track in self._book.page(hour).runs}
        changed: dict[str, Event] = {}
        for track, hour in sorted(looked_at):
            settle = self._silences if track[0] is Sign.PRESENCE else self._troubles
            for owner, event in settle(track, hour, newest).differences():
                changed[event.event_id] = event
                self._book.put_event(owner, event)
        return sorted(changed.values(), key=lambda event: (event.start, event.event_id))

    def forget(self) -> None:
        """Return to the saved state of the book."""
        self._book.discard()
        self._open = None

    def _still_open(self, newest: datetime) -> set[tuple[Track, int]]:
        if self._open is None:
            self._open = {}
            now = hour_of(newest)
            for hour in self._book.hours(now - _FORGOTTEN_HOURS, now + _FORGOTTEN_HOURS):
                page = self._book.page(hour)
                self._open.update({track: {hour} for track in page.runs if track[0] is Sign.PRESENCE})
                for event in page.events.values():
                    if event.status is EventStatus.OPEN and event.kind in _SIGN_OF_EVENT:
                        self._open.setdefault((_SIGN_OF_EVENT[event.kind], event.uuid), set()).add(hour)
        return {(track, hour) for track, hours in self._open.items() for hour in hours}

    def _troubles(self, track: Track, hour: int, newest: datetime) -> _Settled:
        """The events of this hour's runs and of runs connected with them."""
        gap = gap_of(track[0], self._rules)
        # One more hour on both sides: their runs may have been connected through this hour before it changed.
        first, last = hour - 1, hour + 1
        while self._connected(track, first - 1, gap):
            first -= 1
        while self._connected(track, last, gap):
            last += 1
        hours = self._book.hours(first, last)
        runs = [run for each in hours for run in self._book.runs(each, track)]
        events = [event_of(run, self._rules, newest) for run in joined(runs, gap)]
        present = {event.event_id: (hour_of(event.start), event) for event in events if event is not None}
        still_open = {owner for owner, event in present.values() if event.status is EventStatus.OPEN}
        assert self._open is not None
        elsewhere = self._open.pop(track, set()) - set(range(first, last + 1))
        if still_open | elsewhere:
            self._open[track] = still_open | elsewhere
        return _Settled(self._earlier(EVENT_OF_SIGN[track[0]], track[1], hours), present)

    def _connected(self, track: Track, hour: int, gap: timedelta) -> bool:
        """Whether a run of this hour continues in the next; gaps are shorter than an hour."""
        before, after = self._book.runs(hour, track), self._book.runs(hour + 1, track)
        return bool(before) and bool(after) and after[0].first - before[-1].end <= gap

    def _silences(self, track: Track, hour: int, newest: datetime) -> _Settled:
        """The silences that end or begin with the presence of this hour."""
        before = self._nearest(track, reversed(self._book.hours(hour - _FORGOTTEN_HOURS, hour - 1)))
        after = self._nearest(track, self._book.hours(hour + 1, hour + _FORGOTTEN_HOURS))
        here = self._book.runs(hour, track)
        line = [*before[-1:], *here]
        present: dict[str, tuple[int, Event]] = {}
        for run, following in zip(line, [*line[1:], *after[:1], None], strict=False):
            event = silence_after(run, None if following is None else following.first, self._rules, newest)
            if event is not None:
                present[event.event_id] = (hour_of(run.final), event)
        if line and not after:
            assert self._open is not None
            self._open[track] = {hour_of(line[-1].final)}
        begin = before[-1].end if before else hour_start(hour)
        end = hour_start(hour + 1)
        owners = {hour_of(run.final) for run in line} | {hour}
        earlier = {
            event_id: (owner, event)
            for event_id, (owner, event) in self._earlier(SILENT_GPU, track[1], owners).items()
            if begin <= event.start <= end
        }
        return _Settled(earlier, present)

    def _nearest(self, track: Track, hours: Iterable[int]) -> list[Run]:
        return next((runs for runs in (self._book.runs(hour, track) for hour in hours) if runs), [])

    def _earlier(self, kind: str, uuid: str, hours: Iterable[int]) -> dict[str, tuple[int, Event]]:
        return {
            event.event_id: (hour, event)
            for hour in hours
            for event in self._book.page(hour).events.values()
            if event.uuid == uuid and event.kind == kind
        }
