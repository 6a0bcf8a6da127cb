"""One GPU over time (load and faults in, the values of its metrics out), and the records of a fleet: each GPU reports
all its metrics at every interval, one GPU after the other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from millstream.pipeline import metrics
from millstream.pipeline.fleet.load import (
    DRIVER_VERSION,
    EVERYTHING,
    MEMORY_MIB,
    MODEL_NAME,
    POWER_LIMIT_W,
    Fault,
    FaultKind,
    FaultPlan,
    Gpu,
    Job,
    JobKind,
    Share,
    Slot,
    dice,
    gpus_of_fleet,
    slot_at,
)
from millstream.pipeline.record import RecordForm, RecordTemplate, TelemetryRecord, format_time

POINTS_PER_REPORT = 15
_SILENT = {FaultKind.DEAD_GPU, FaultKind.DEAD_HOST}

_IDLE_POWER_W, _FULL_POWER_W = 68.0, 690.0
_IDLE_CLOCK_MHZ, _FULL_CLOCK_MHZ, _MEMORY_CLOCK_MHZ = 345, 1980, 2619
_DRIVER_MEMORY_MIB = 4.0
# How fast power and heat follow: after this many seconds they have gone 63 % of the way.
_POWER_LAG_S, _HEAT_LAG_S = 3.0, 75.0
_DEGREES_PER_WATT = 0.068
_THROTTLE_FROM_C = 87.0
_NVLINK_MB_PER_S = 60_000.0
_XID_CODES = (13, 31, 43, 45, 48, 63, 74, 79, 94)
# Counters count from when the machines were set up.
_SET_UP_S = 1_735_689_600

Active = dict[FaultKind, Fault]


class SimulatedGpu:
    """What a GPU remembers from one measurement to the next."""

    def __init__(self, gpu: Gpu, seed: int, start_s: float) -> None:
        self._noise = dice(seed, "noise", gpu.uuid)
        character = dice(seed, "character", gpu.uuid)
        # Those at the back of the host get air that the others have warmed.
        self._inlet_c = 23.0 + dice(seed, "room", gpu.hostname).uniform(0, 4) + 0.7 * (gpu.index % 4)
        self._efficiency = character.uniform(0.97, 1.03)
        self._replays = character.randrange(40)
        self._at_s = start_s
        self._power_w = _IDLE_POWER_W
        self._temperature_c = self._inlet_c + _DEGREES_PER_WATT * _IDLE_POWER_W
        up_s = max(0.0, start_s - _SET_UP_S)
        self._energy_mj = up_s * character.uniform(250_000, 350_000)
        self._nvlink_mb = up_s * character.uniform(5_000, 15_000)
        self._is_settled = False

    def measure(self, now_s: float, job: Job | None, faults: list[Fault]) -> dict[str, float]:
        """Values by metric at a later moment. Time in which nobody looked passes as if all stayed the same."""
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        active = {fault.kind: fault for fault in faults}
        utilisation = self._utilisation(now_s, job, active)
        clock_mhz = self._clock(job, utilisation, active)
        self._draw_and_heat(elapsed_s, utilisation, clock_mhz, active)
        self._energy_mj += self._power_w * elapsed_s * 1_000
        trains = job is not None and job.kind is JobKind.TRAINING
        if trains:
            self._nvlink_mb += utilisation / 100 * _NVLINK_MB_PER_S * elapsed_s
        self._replays += self._noise.random() < elapsed_s * 2e-6
        used_mib = round(self._memory(now_s, job, active))
        has_error = FaultKind.XID_BURST in active and self._noise.random() < 0.6
        return {
            metrics.GPU_UTIL: round(utilisation),
            metrics.MEM_COPY_UTIL: round(utilisation * (0.55 if trains else 0.3)),
            metrics.ENC_UTIL: 0,
            metrics.DEC_UTIL: 0,
            metrics.SM_CLOCK: clock_mhz,
            metrics.MEM_CLOCK: _MEMORY_CLOCK_MHZ,
            metrics.GPU_TEMP: round(self._temperature_c),
            metrics.MEMORY_TEMP: round(self._temperature_c + 4 + 0.012 * self._power_w),
            metrics.POWER_USAGE: round(self._power_w, 3),
            metrics.FB_USED: used_mib,
            metrics.FB_FREE: MEMORY_MIB - used_mib,
            metrics.XID_ERRORS: self._noise.choice(_XID_CODES) if has_error else 0,
            metrics.TOTAL_ENERGY_CONSUMPTION: round(self._energy_mj),
            metrics.PCIE_REPLAY_COUNTER: self._replays,
            metrics.NVLINK_BANDWIDTH_TOTAL: round(self._nvlink_mb),
        }

    def _utilisation(self, now_s: float, job: Job | None, active: Active) -> float:
        if job is None or FaultKind.UTILISATION_COLLAPSE in active:
            return 0.0
        wanted = job.utilisation(now_s)
        return min(100.0, max(0.0, wanted + self._noise.gauss(0, 2.5))) if wanted else 0.0

    def _clock(self, job: Job | None, utilisation: float, active: Active) -> int:
        if job is None:
            return _IDLE_CLOCK_MHZ
        too_hot = self._temperature_c - _THROTTLE_FROM_C
        if FaultKind.THERMAL_THROTTLE in active and too_hot > 0:
            return max(1_000, _FULL_CLOCK_MHZ - round(too_hot * 110 / 15) * 15)
        return _FULL_CLOCK_MHZ - round(utilisation * 1.2 / 15) * 15

    def _draw_and_heat(self, elapsed_s: float, utilisation: float, clock_mhz: int, active: Active) -> None:
        work = (utilisation / 100) ** 0.85 * (clock_mhz / _FULL_CLOCK_MHZ) ** 0.6
        target_w = self._efficiency * (_IDLE_POWER_W + (_FULL_POWER_W - _IDLE_POWER_W) * work)
        target_w = min(target_w * (1 + self._noise.gauss(0, 0.012)), POWER_LIMIT_W)
        if (excursion := active.get(FaultKind.POWER_EXCURSION)) is not None:
            target_w = POWER_LIMIT_W * (1.06 + 0.18 * excursion.strength)
        self._power_w = self._follow(self._power_w, target_w, elapsed_s, _POWER_LAG_S)
        target_c = self._inlet_c + _DEGREES_PER_WATT * self._power_w
        if (cooling := active.get(FaultKind.THERMAL_THROTTLE)) is not None:
            # Hot air comes back in; a strong fault takes the GPU past 92 degrees even at its lowest clock.
            target_c = max(target_c + 24, 89.0) + 8 * cooling.strength
        self._temperature_c = min(self._follow(self._temperature_c, target_c, elapsed_s, _HEAT_LAG_S), 99.0)
        self._is_settled = True

    def _follow(self, now: float, target: float, elapsed_s: float, lag_s: float) -> float:
        """What is measured first has long been as it is."""
        if not self._is_settled:
            return target
        return target + (now - target) * math.exp(-elapsed_s / lag_s)

    def _memory(self, now_s: float, job: Job | None, active: Active) -> float:
        used_mib = _DRIVER_MEMORY_MIB
        if job is not None:
            # It is taken over the first minute and then held.
            used_mib += job.memory_mib * min(1.0, (now_s - job.start_s + 1) / 60)
        if (leak := active.get(FaultKind.MEMORY_LEAK)) is not None:
            # Between 6 and 14 GiB an hour.
            used_mib += (now_s - leak.start_s) / 3600 * (6 + 8 * leak.strength) * 1024
        return min(used_mib, MEMORY_MIB - 40.0)


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet of `hosts` with eight GPUs each; `share` is the part of it that reports here."""

    hosts: int
    seed: int = 1
    faults: FaultPlan | None = None
    interval_ms: float = 10_000
    form: RecordForm = RecordForm.FLAT
    share: Share = EVERYTHING


@dataclass(frozen=True, slots=True)
class Report:
    """What one GPU says at one moment, a JSON record for each metric."""

    time_ms: int
    uuid: str
    records: list[bytes]


class Fleet:
    """The GPUs of one share. Their values depend on the seed, on the first moment asked for, and on the interval."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        everywhere = gpus_of_fleet(settings.hosts, settings.seed)
        self._size = len(everywhere)
        self.gpus = [gpu for gpu in everywhere if settings.share.holds(gpu.uuid)]

    def reports(self, start_ms: int, end_ms: int | None = None) -> Iterator[Report]:
        """Reports from `start_ms` on, in the order of time, up to but without `end_ms`."""
        slots: dict[str, Slot] = {}
        reporters = [_Reporter(gpu, self.settings, slots, start_ms / 1000) for gpu in self.gpus]
        interval_ms = self.settings.interval_ms
        for tick in count() if reporters else ():
            for reporter in reporters:
                # Spread over the interval by the place in the whole fleet, so that a share does not change it.
                time_ms = start_ms + int((tick + reporter.gpu.place / self._size) * interval_ms)
                if end_ms is not None and time_ms >= end_ms:
                    return
                report = reporter.report(time_ms)
                if report is not None:
                    yield report


class _Reporter:
    def __init__(self, gpu: Gpu, settings: FleetSettings, slots: dict[str, Slot], start_s: float) -> None:
        self.gpu = gpu
        self._settings = settings
        self._plan = settings.faults if settings.faults is not None else FaultPlan(settings.seed)
        self._slots = slots
        """The current slot of each host, which its GPUs share."""
        self._simulated = SimulatedGpu(gpu, settings.seed, start_s)
        self._faults: list[Fault] = []
        self._faults_until_s = start_s
        self._job: Job | None = None
        self._templates: dict[str, RecordTemplate] = {}

    def report(self, time_ms: int) -> Report | None:
        """None while the GPU or its host is dead."""
        now_s = time_ms / 1000
        if now_s >= self._faults_until_s:
            self._faults, self._faults_until_s = self._plan.around(self.gpu, now_s)
        if any(fault.kind in _SILENT for fault in self._faults):
            return None
        slot = self._slots.get(self.gpu.hostname)
        if slot is None or now_s >= slot.end_s:
            slot = self._slots[self.gpu.hostname] = slot_at(self._settings.seed, self.gpu.hostname, now_s)
        job = slot.jobs[self.gpu.index]
        values = self._simulated.measure(now_s, job, self._faults)
        if job is not self._job or not self._templates:
            self._job = job
            self._templates = {metric: self._template(metric, job) for metric in values}
        timestamp = format_time(time_ms)
        filled = [self._templates[metric].fill(timestamp, value) for metric, value in values.items()]
        return Report(time_ms, self.gpu.uuid, filled)

    def _template(self, metric: str, job: Job | None) -> RecordTemplate:
        gpu = self.gpu
        record = TelemetryRecord(
            time_ms=0,
            metric_name=metric,
            uuid=gpu.uuid,
            value=0.0,
            gpu_id=str(gpu.index),
            device=f"nvidia{gpu.index}",
            model_name=MODEL_NAME,
            hostname=gpu.hostname,
            container=job.container if job else "",
            pod=job.pod if job else "",
            namespace=job.namespace if job else "",
            labels_raw=f'DCGM_FI_DRIVER_VERSION="{DRIVER_VERSION}"',
        )
        return RecordTemplate.of(record, self._settings.form)
