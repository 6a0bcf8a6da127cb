"""What is known of each hour's health: its runs, and the events that began in it as they were last published.

A file per hour, `<data>/health/2025-07-18T20.json`, a few dozen bytes per GPU. Hours that were read stay in memory,
the ones used last.
"""

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from millstream.pipeline.files import write_whole
from millstream.pipeline.job.health.model import Run, Sign
from millstream.pipeline.moments import hour_of, hour_start
from millstream.pipeline.stores.rows import Event

_HOURS_IN_MEMORY = 400

Track = tuple[Sign, str]
"""A sign of a GPU, by uuid."""


@dataclass(frozen=True, slots=True)
class HourPage:
    runs: Mapping[Track, tuple[Run, ...]] = field(default_factory=dict)
    """In order of time."""
    events: Mapping[str, Event] = field(default_factory=dict)
    """By event_id; the retracted ones too, so that what comes back is known."""


class HealthBook:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._pages: OrderedDict[int, HourPage] = OrderedDict()
        self._unsaved: set[int] = set()
        self._known = sorted(_hour_named(path) for path in directory.glob("????-??-??T??.json"))

    def hours(self, first: int, last: int) -> list[int]:
        """The hours that the book has a page of, from first to last inclusive."""
        return self._known[bisect_left(self._known, first) : bisect_right(self._known, last)]

    def page(self, hour: int) -> HourPage:
        page = self._pages.get(hour)
        if page is not None:
            self._pages.move_to_end(hour)
            return page
        if not self.hours(hour, hour):
            return HourPage()
        page = self._pages[hour] = _read(self._path(hour))
        self._forget_old()
        return page

    def runs(self, hour: int, track: Track) -> tuple[Run, ...]:
        return self.page(hour).runs.get(track, ())

    def put_runs(self, hour: int, runs: Iterable[Run]) -> None:
        """Replace the runs of an hour."""
        by_track: dict[Track, list[Run]] = {}
        for run in sorted(runs, key=lambda run: (run.sign, run.uuid, run.first)):
            by_track.setdefault((run.sign, run.uuid), []).append(run)
        page = replace(self.page(hour), runs={track: tuple(found) for track, found in by_track.items()})
        self._put(hour, page)

    def put_event(self, hour: int, event: Event) -> None:
        page = self.page(hour)
        self._put(hour, replace(page, events={**page.events, event.event_id: event}))

    def save(self) -> None:
        """Make all that was put durable."""
        for hour in sorted(self._unsaved):
            page = self._pages[hour]
            document = {
                "runs": [run for runs in page.runs.values() for run in runs],
                "events": list(page.events.values()),
            }
            write_whole(self._path(hour), msgspec.json.encode(document))
        self._unsaved.clear()
        self._forget_old()

    def discard(self) -> None:
        """Forget what was put and not saved."""
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
        for hour in list(self._pages):
            if len(self._pages) <= _HOURS_IN_MEMORY:
                return
            if hour not in self._unsaved:
                del self._pages[hour]


def _hour_named(path: Path) -> int:
    return hour_of(datetime.strptime(path.stem, "%Y-%m-%dT%H").replace(tzinfo=UTC))


class _Stored(msgspec.Struct):
    runs: list[Run]
    events: list[Event]


def _read(path: Path) -> HourPage:
    stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
    runs: dict[Track, list[Run]] = {}
    for run in stored.runs:
        runs.setdefault((run.sign, run.uuid), []).append(run)
    return HourPage(
        {track: tuple(found) for track, found in runs.items()},
        {event.event_id: event for event in stored.events},
    )
