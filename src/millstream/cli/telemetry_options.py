"""Checks the options of `millstream telemetry stream`, and makes the points that they select."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from millstream.cli.errors import UsageError
from millstream.config.units import parse_duration_ms
from millstream.pipeline.fleet import POINTS_PER_REPORT, Fleet, FleetSettings, Share
from millstream.pipeline.record import RecordForm, parse_time_ms
from millstream.pipeline.sources import BadRow, Burst, CsvSource, Timestamps, check_header, fleet_bursts
from millstream.runtime.clock import SystemClock

DEFAULT_HOSTS = 4
DEFAULT_INTERVAL = "10s"
DEFAULT_SEED = 1
_SHORTEST_INTERVAL_MS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The given options; None and False stand for missing ones."""

    csv: Path | None = None
    rate: float | None = None
    loops: int | None = None
    replay: bool = False
    speed: float | None = None
    timestamps: Timestamps | None = None
    hosts: int | None = None
    interval: str | None = None
    faults: float | None = None
    seed: int | None = None
    since: str | None = None
    until: str | None = None
    follow: bool = False

    def check(self) -> None:
        """Raise UsageError for options that contradict each other or would do nothing."""
        foreign = self._fleet_options() if self.csv is not None else self._file_options()
        for name, is_given in foreign.items():
            if is_given:
                where = "a simulated fleet" if self.csv is not None else "a CSV file"
                raise UsageError(f"{name} is an option of {where}; leave it out")
        if self.speed is not None and not self.replay:
            raise UsageError("--speed needs --replay")
        if self.replay and self.rate is not None:
            raise UsageError("--replay keeps the file's own timing; leave out --rate, or use --speed")
        if self.since is None and (self.until is not None or self.follow):
            raise UsageError(f"{'--follow' if self.follow else '--until'} needs --since")
        if self.until is not None and self.follow:
            raise UsageError("--follow goes on without end; leave out --until")
        if self.rate is not None and self.interval is not None and self.since is None:
            raise UsageError("--rate sets the interval of a fleet; leave out --interval")

    def bursts(self, topic: str, form: RecordForm, share: Share, on_bad_row: BadRow) -> Iterator[Burst]:
        """The selected points."""
        if self.csv is not None:
            return self._csv_bursts(self.csv, topic, form, share, on_bad_row)
        return self._fleet_bursts(topic, form, share)

    def _file_options(self) -> dict[str, bool]:
        return {
            "--loops": self.loops is not None,
            "--replay": self.replay,
            "--speed": self.speed is not None,
            "--timestamps": self.timestamps is not None,
        }

    def _fleet_options(self) -> dict[str, bool]:
        return {
            "--hosts": self.hosts is not None,
            "--interval": self.interval is not None,
            "--faults": self.faults is not None,
            "--seed": self.seed is not None,
            "--since": self.since is not None,
            "--until": self.until is not None,
            "--follow": self.follow,
        }

    def _csv_bursts(
        self, csv: Path, topic: str, form: RecordForm, share: Share, on_bad_row: BadRow
    ) -> Iterator[Burst]:
        check_header(csv)
        loops = 1 if self.replay and self.loops is None else self.loops
        timestamps = self.timestamps or (Timestamps.ORIGINAL if loops == 1 else Timestamps.NOW)
        source = CsvSource(csv, topic, form, share, timestamps, loops, on_bad_row)
        return source.as_it_was(self.speed or 1.0) if self.replay else source.at_rate(self.rate)

    def _fleet_bursts(self, topic: str, form: RecordForm, share: Share) -> Iterator[Burst]:
        now_ms = SystemClock().now_ms()
        settings = FleetSettings(
            hosts=self.hosts or DEFAULT_HOSTS,
            seed=DEFAULT_SEED if self.seed is None else self.seed,
            faults=1.0 if self.faults is None else self.faults,
            interval_ms=duration_ms(self.interval or DEFAULT_INTERVAL, "--interval"),
            form=form,
            share=share,
        )
        fleet = Fleet(settings)
        if not fleet.gpus:
            raise UsageError(
                f"none of the GPUs belongs to instance {share.number}/{share.total}; use more --hosts"
            )
        if self.since is None:
            return fleet_bursts(self._at_rate(fleet), topic, now_ms)
        start_ms = moment_ms(self.since, "--since", now_ms)
        end_ms = None if self.follow else moment_ms(self.until, "--until", now_ms) if self.until else now_ms
        if end_ms is not None and start_ms >= end_ms:
            raise UsageError("--since is not before the end; nothing lies between")
        return fleet_bursts(fleet, topic, start_ms, end_ms, rate=self.rate)

    def _at_rate(self, fleet: Fleet) -> Fleet:
        """The fleet with the interval that yields so many points a second."""
        if self.rate is None:
            return fleet
        points = len(fleet.gpus) * POINTS_PER_REPORT
        interval_ms = 1000 * points / self.rate
        if interval_ms < _SHORTEST_INTERVAL_MS:
            raise UsageError(
                f"--rate {self.rate:g} is more than {len(fleet.gpus)} GPUs can make, which report at most once in a"
                " millisecond; use more --hosts"
            )
        return Fleet(replace(fleet.settings, interval_ms=interval_ms))


def parse_share(text: str) -> Share:
    try:
        return Share.parse(text)
    except ValueError as error:
        raise UsageError(f"--instance {error}") from None


def duration_ms(text: str, option: str) -> int:
    """A positive duration such as 90s."""
    try:
        duration = parse_duration_ms(text)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
    if duration <= 0:
        raise UsageError(f"{option} {text!r} is not longer than 0; write for example 30s")
    return duration


def moment_ms(text: str, option: str, now_ms: int) -> int:
    """The time in a text: RFC 3339, or a duration before now."""
    if text[:1].isdigit() and "T" in text:
        try:
            return parse_time_ms(text)
        except ValueError:
            raise UsageError(f"{option} {text!r} is not a time such as 2026-03-01T00:00:00Z") from None
    return now_ms - duration_ms(text, option)
