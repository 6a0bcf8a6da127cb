"""Decides which runs of minutes with a sign are events. Pure functions of runs, rules and the newest time."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
import orjson

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.moments import HOUR, MINUTE, duration, micros, rfc3339
from millstream.pipeline.stores.rows import Event, EventStatus, Severity

FORGOTTEN_AFTER = timedelta(days=7)
"""A GPU that comes back after this long is a new one: its silence stays open."""

# Errors after which a GPU cannot be trusted or reached: double-bit and uncontained ECC, row remapping that failed,
# NVLink, fallen off the bus, GSP.
_FATAL_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 136, 140})


class Sign(StrEnum):
    """The sign that a minute of a GPU shows."""

    HEAT = "heat"
    POWER = "power"
    IDLE = "idle"
    GROWTH = "growth"
    XID = "xid"
    PRESENCE = "presence"


SILENT_GPU = "silent_gpu"
EVENT_OF_SIGN = {
    Sign.HEAT: "thermal_excursion",
    Sign.POWER: "power_excursion",
    Sign.IDLE: "utilisation_collapse",
    Sign.GROWTH: "memory_leak",
    Sign.XID: "xid_burst",
}


class Run(msgspec.Struct, frozen=True):
    """Minutes of one GPU with the same sign, at most the sign's gap apart.

    `first` and `final` are the starts of the first and the last minute, `peak` is the highest value, `last` the latest,
    `before` what preceded the first minute (the mean utilisation before an idle run, the memory at the start of a
    growth), `weight` the number of errors of an XID run.
    """

    sign: Sign
    uuid: str
    hostname: str
    first: datetime
    final: datetime
    minutes: int
    peak: float
    last: float
    before: float | None
    weight: int

    @property
    def end(self) -> datetime:
        return self.final + MINUTE


def gap_of(sign: Sign, rules: PipelineSettings) -> timedelta:
    """The longest time without the sign that does not end a run; less than an hour, except for presence."""
    match sign:
        case Sign.PRESENCE:
            return duration(rules.silent_after)
        case Sign.XID:
            return min(duration(rules.xid_burst_window), HOUR - MINUTE)
        case Sign.HEAT | Sign.POWER | Sign.GROWTH:
            return 2 * MINUTE
        case Sign.IDLE:
            return timedelta()


def joined(runs: Sequence[Run], gap: timedelta) -> list[Run]:
    """Runs of one track, in order; merges runs that were cut at an hour or are separated by a short gap."""
    whole: list[Run] = []
    for run in runs:
        if not whole or run.first - whole[-1].end > gap:
            whole.append(run)
            continue
        previous = whole[-1]
        whole[-1] = msgspec.structs.replace(
            previous,
            hostname=max(previous.hostname, run.hostname),
            final=run.final,
            minutes=previous.minutes + run.minutes,
            peak=max(previous.peak, run.peak),
            last=run.last,
            weight=previous.weight + run.weight,
        )
    return whole


def event_of(run: Run, rules: PipelineSettings, newest: datetime) -> Event | None:
    """The event that a whole run amounts to, if any."""
    judged = _judged(run, rules)
    if judged is None:
        return None
    is_critical, message, evidence = judged
    is_open = run.end + gap_of(run.sign, rules) >= newest
    told = {"minutes": run.minutes, **evidence}
    return _event(EVENT_OF_SIGN[run.sign], run, run.first, run.end, is_critical, is_open, message, told)


def silence_after(
    present: Run, following: datetime | None, rules: PipelineSettings, newest: datetime
) -> Event | None:
    """The event for the silence between the end of a presence and the next sign of life, if it is too long.

    While the silence lasts, `end` is the moment when it became an event, and does not move with the newest point.
    """
    start, silent_after = present.end, duration(rules.silent_after)
    if following is not None and following - start > FORGOTTEN_AFTER:
        following = None
    until = following if following is not None else max(newest, start)
    if until - start <= silent_after:
        return None
    lasting, is_long = following is None, until - start >= duration(rules.silent_critical_after)
    limit = duration(rules.silent_critical_after) if is_long else silent_after
    wording = "has sent nothing for more than" if lasting else "sent nothing for"
    message = f"{wording} {(limit if lasting else until - start) // MINUTE} min"
    evidence = {
        "last_heard": rfc3339(start),
        "heard_again": None if following is None else rfc3339(following),
        "silent_after_seconds": int(silent_after.total_seconds()),
    }
    end = start + silent_after if following is None else following
    return _event(SILENT_GPU, present, start, end, is_long, lasting, message, evidence)


def _judged(run: Run, rules: PipelineSettings) -> tuple[bool, str, dict[str, object]] | None:
    """Whether the event is critical, its message, and the evidence; None if the run is no event."""
    match run.sign:
        case Sign.HEAT:
            return (
                run.peak >= rules.temperature_critical,
                f"{run.peak:.0f} °C at its hottest, {rules.temperature_warning:.0f} °C is the limit",
                {"peak_celsius": run.peak, "limit_celsius": rules.temperature_warning},
            )
        case Sign.POWER:
            return (
                run.peak >= rules.power_limit * rules.power_fraction_critical,
                f"{run.peak:.0f} W at its highest, the power limit is {rules.power_limit:.0f} W",
                {"peak_watts": run.peak, "limit_watts": rules.power_limit},
            )
        case Sign.IDLE:
            long_enough = run.end - run.first >= duration(rules.collapse_after)
            if not long_enough or run.before is None or run.before < rules.collapse_from:
                return None
            return (
                False,
                f"utilisation fell from {run.before:.0f} % to {rules.collapse_to:g} % or less with memory still in use",
                {"utilisation_before": run.before, "utilisation_highest": run.peak},
            )
        case Sign.GROWTH:
            grown = run.last - (run.before or 0.0)
            per_hour = grown / (run.minutes + duration(rules.memory_leak_window) / MINUTE) * 60
            return (
                grown >= 4 * rules.memory_leak_growth,
                f"memory grew by {grown / 1024:.1f} GiB without a pause, about {per_hour / 1024:.1f} GiB an hour",
                {"from_mib": run.before, "to_mib": run.last, "grown_mib": grown},
            )
        case Sign.XID:
            if run.weight < rules.xid_burst_count:
                return None
            code = int(run.peak)
            return (
                code in _FATAL_XIDS,
                f"{run.weight} XID errors, the highest code is {code}",
                {"errors": run.weight, "highest_code": code},
            )
        case Sign.PRESENCE:
            return None


def _event(
    kind: str, run: Run, start: datetime, end: datetime, is_critical: bool, is_open: bool, message: str,
    evidence: Mapping[str, object],
) -> Event:  # fmt: skip
    identity = f"{kind}|{run.uuid}|{micros(start)}"
    return Event(
        event_id=hashlib.sha256(identity.encode()).hexdigest()[:32],
        kind=kind,
        severity=Severity.CRITICAL if is_critical else Severity.WARNING,
        uuid=run.uuid,
        hostname=run.hostname,
        start=start,
        end=end,
        status=EventStatus.OPEN if is_open else EventStatus.CLOSED,
        message=message,
        evidence=orjson.dumps(evidence, option=orjson.OPT_SORT_KEYS).decode(),
    )
