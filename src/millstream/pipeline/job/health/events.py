"""Which runs are events, and what is told about them. Pure: runs, thresholds and the newest time in."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import orjson

from millstream.pipeline.job.health.model import EventKind, Run, Sign, Thresholds
from millstream.pipeline.moments import micros, rfc3339
from millstream.pipeline.stores.rows import Event, EventStatus, Severity

FORGOTTEN_AFTER = timedelta(days=7)
"""A GPU that comes back after this long is a new one: its silence stays open."""

# Errors after which a GPU cannot be trusted or reached: double-bit and uncontained ECC, row remapping that failed,
# NVLink, fallen off the bus, GSP.
_FATAL_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 136, 140})

EVENT_OF_SIGN = {
    Sign.HEAT: EventKind.THERMAL_EXCURSION,
    Sign.POWER: EventKind.POWER_EXCURSION,
    Sign.IDLE: EventKind.UTILISATION_COLLAPSE,
    Sign.GROWTH: EventKind.MEMORY_LEAK,
    Sign.XID: EventKind.XID_BURST,
}


def joined(runs: Sequence[Run], gap: timedelta) -> list[Run]:
    """Runs of one track, in order, with those made one that hours had cut or a short gap parts."""
    whole: list[Run] = []
    for run in runs:
        if not whole or run.first - whole[-1].end > gap:
            whole.append(run)
            continue
        previous = whole[-1]
        whole[-1] = replace(
            previous,
            hostname=max(previous.hostname, run.hostname),
            final=run.final,
            minutes=previous.minutes + run.minutes,
            peak=max(previous.peak, run.peak),
            last=run.last,
            weight=previous.weight + run.weight,
        )
    return whole


def event_of(run: Run, thresholds: Thresholds, newest: datetime) -> Event | None:
    """The event that a whole run is, if it is one."""
    judged = _judged(run, thresholds)
    if judged is None:
        return None
    severity, message, evidence = judged
    may_go_on = run.end + thresholds.gap(run.sign) >= newest
    return _event(
        EVENT_OF_SIGN[run.sign],
        run,
        start=run.first,
        end=run.end,
        status=EventStatus.OPEN if may_go_on else EventStatus.CLOSED,
        severity=severity,
        message=message,
        evidence={"minutes": run.minutes, **evidence},
    )


def silence_after(
    present: Run, following: datetime | None, thresholds: Thresholds, newest: datetime
) -> Event | None:
    """The silence between the end of a presence and the next sign of life, if it was or is too long.

    While it lasts, `end` is the moment when it became an event: it does not move with the newest point.
    """
    start = present.end
    if following is not None and following - start > FORGOTTEN_AFTER:
        following = None
    until = following if following is not None else max(newest, start)
    if until - start <= thresholds.silent_after:
        return None
    lasting = following is None
    is_long = until - start >= thresholds.silent_critical_after
    limit = thresholds.silent_critical_after if is_long else thresholds.silent_after
    minutes = limit if lasting else until - start
    wording = "has sent nothing for more than" if lasting else "sent nothing for"
    return _event(
        EventKind.SILENT_GPU,
        present,
        start=start,
        end=start + thresholds.silent_after if following is None else following,
        status=EventStatus.OPEN if lasting else EventStatus.CLOSED,
        severity=Severity.CRITICAL if is_long else Severity.WARNING,
        message=f"{wording} {_minutes(minutes)}",
        evidence={
            "last_heard": rfc3339(start),
            "heard_again": None if following is None else rfc3339(following),
            "silent_after_seconds": int(thresholds.silent_after.total_seconds()),
        },
    )


def _judged(run: Run, limits: Thresholds) -> tuple[Severity, str, dict[str, object]] | None:
    match run.sign:
        case Sign.HEAT:
            is_critical = run.peak >= limits.temperature_critical
            return (
                Severity.CRITICAL if is_critical else Severity.WARNING,
                f"{run.peak:.0f} °C at its hottest, {limits.temperature_warning:.0f} °C is the limit",
                {"peak_celsius": run.peak, "limit_celsius": limits.temperature_warning},
            )
        case Sign.POWER:
            is_critical = run.peak >= limits.power_critical
            return (
                Severity.CRITICAL if is_critical else Severity.WARNING,
                f"{run.peak:.0f} W at its highest, the power limit is {limits.power_limit:.0f} W",
                {"peak_watts": run.peak, "limit_watts": limits.power_limit},
            )
        case Sign.IDLE:
            return _collapse(run, limits)
        case Sign.GROWTH:
            return _leak(run, limits)
        case Sign.XID:
            return _burst(run, limits)
        case Sign.PRESENCE:
            return None


def _collapse(run: Run, limits: Thresholds) -> tuple[Severity, str, dict[str, object]] | None:
    long_enough = run.end - run.first >= limits.collapse_after
    if not long_enough or run.before is None or run.before < limits.collapse_from:
        return None
    return (
        Severity.WARNING,
        f"utilisation fell from {run.before:.0f} % to {limits.collapse_to:g} % or less with memory still in use",
        {"utilisation_before": run.before, "utilisation_highest": run.peak},
    )


def _leak(run: Run, limits: Thresholds) -> tuple[Severity, str, dict[str, object]]:
    grown = run.last - (run.before or 0.0)
    window_minutes = limits.leak_window.total_seconds() / 60
    per_hour = grown / (run.minutes + window_minutes) * 60
    return (
        Severity.CRITICAL if grown >= 4 * limits.leak_growth else Severity.WARNING,
        f"memory grew by {grown / 1024:.1f} GiB without a pause, about {per_hour / 1024:.1f} GiB an hour",
        {"from_mib": run.before, "to_mib": run.last, "grown_mib": grown},
    )


def _burst(run: Run, limits: Thresholds) -> tuple[Severity, str, dict[str, object]] | None:
    if run.weight < limits.xid_burst_count:
        return None
    code = int(run.peak)
    return (
        Severity.CRITICAL if code in _FATAL_XIDS else Severity.WARNING,
        f"{run.weight} XID errors, the highest code is {code}",
        {"errors": run.weight, "highest_code": code},
    )


def _event(
    kind: EventKind, run: Run, *, start: datetime, end: datetime, status: EventStatus, severity: Severity,
    message: str, evidence: dict[str, object],
) -> Event:  # fmt: skip
    identity = f"{kind}|{run.uuid}|{micros(start)}"
    return Event(
        event_id=hashlib.sha256(identity.encode()).hexdigest()[:32],
        kind=str(kind),
        severity=severity,
        uuid=run.uuid,
        hostname=run.hostname,
        start=start,
        end=end,
        status=status,
        message=message,
        evidence=orjson.dumps(evidence, option=orjson.OPT_SORT_KEYS).decode(),
    )


def _minutes(time: timedelta) -> str:
    return f"{int(time.total_seconds() // 60)} min"
