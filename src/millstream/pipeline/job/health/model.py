"""What health is told in: runs of minutes, and the thresholds that make them events."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from millstream.config.pipeline_settings import PipelineSettings
from millstream.pipeline.moments import HOUR, MINUTE


class Sign(StrEnum):
    """What a minute of a GPU shows."""

    HEAT = "heat"
    POWER = "power"
    IDLE = "idle"
    GROWTH = "growth"
    XID = "xid"
    PRESENCE = "presence"


class EventKind(StrEnum):
    THERMAL_EXCURSION = "thermal_excursion"
    POWER_EXCURSION = "power_excursion"
    UTILISATION_COLLAPSE = "utilisation_collapse"
    MEMORY_LEAK = "memory_leak"
    XID_BURST = "xid_burst"
    SILENT_GPU = "silent_gpu"


@dataclass(frozen=True, slots=True)
class Run:
    """Minutes of one GPU that show one sign, with at most the sign's gap between two of them.

    `peak` is the highest value, `last` the latest, `before` what preceded the first minute (the mean utilisation
    before an idle run, the memory at the start of a growth), `weight` the number of errors of an XID run.
    """

    sign: Sign
    uuid: str
    hostname: str
    first: datetime
    """The start of the first minute."""
    final: datetime
    """The start of the last minute."""
    minutes: int
    peak: float
    last: float
    before: float | None
    weight: int

    @property
    def end(self) -> datetime:
        return self.final + MINUTE


@dataclass(frozen=True, slots=True)
class Thresholds:
    temperature_warning: float = 85.0
    temperature_critical: float = 92.0
    power_limit: float = 700.0
    power_warning: float = 714.0
    power_critical: float = 805.0
    collapse_from: float = 50.0
    collapse_to: float = 5.0
    collapse_after: timedelta = timedelta(minutes=3)
    leak_window: timedelta = timedelta(minutes=30)
    leak_growth: float = 2048.0
    silent_after: timedelta = timedelta(minutes=5)
    silent_critical_after: timedelta = timedelta(minutes=30)
    xid_burst_count: int = 3
    xid_burst_window: timedelta = timedelta(minutes=5)

    @classmethod
    def of(cls, settings: PipelineSettings) -> "Thresholds":
        def duration(milliseconds: int) -> timedelta:
            return timedelta(milliseconds=milliseconds)

        return cls(
            temperature_warning=settings.temperature_warning,
            temperature_critical=settings.temperature_critical,
            power_limit=settings.power_limit,
            power_warning=settings.power_limit * settings.power_fraction_warning,
            power_critical=settings.power_limit * settings.power_fraction_critical,
            collapse_from=settings.collapse_from,
            collapse_to=settings.collapse_to,
            collapse_after=duration(settings.collapse_after),
            leak_window=duration(settings.memory_leak_window),
            leak_growth=settings.memory_leak_growth,
            silent_after=duration(settings.silent_after),
            silent_critical_after=duration(settings.silent_critical_after),
            xid_burst_count=settings.xid_burst_count,
            xid_burst_window=duration(settings.xid_burst_window),
        )

    def gap(self, sign: Sign) -> timedelta:
        """The longest time without the sign that does not end a run; but for presence, less than an hour."""
        match sign:
            case Sign.PRESENCE:
                return self.silent_after
            case Sign.XID:
                return min(self.xid_burst_window, HOUR - MINUTE)
            case Sign.HEAT | Sign.POWER | Sign.GROWTH:
                return 2 * MINUTE
            case Sign.IDLE:
                return timedelta()
