"""One GPU over time: load and faults in, the values of its metrics out."""

import math

from millstream.pipeline import metrics
from millstream.pipeline.fleet.dice import dice
from millstream.pipeline.fleet.faults import Fault, FaultKind
from millstream.pipeline.fleet.inventory import MEMORY_MIB, POWER_LIMIT_W, Gpu
from millstream.pipeline.fleet.load import Job, JobKind

MEASURED = (
    metrics.GPU_UTIL,
    metrics.MEM_COPY_UTIL,
    metrics.ENC_UTIL,
    metrics.DEC_UTIL,
    metrics.SM_CLOCK,
    metrics.MEM_CLOCK,
    metrics.GPU_TEMP,
    metrics.MEMORY_TEMP,
    metrics.POWER_USAGE,
    metrics.FB_USED,
    metrics.FB_FREE,
    metrics.XID_ERRORS,
    metrics.TOTAL_ENERGY_CONSUMPTION,
    metrics.PCIE_REPLAY_COUNTER,
    metrics.NVLINK_BANDWIDTH_TOTAL,
)
"""The metrics a GPU reports, in the order in which `SimulatedGpu.measure` gives their values."""

_IDLE_POWER_W = 68.0
_FULL_POWER_W = 690.0
_IDLE_CLOCK_MHZ = 345
_FULL_CLOCK_MHZ = 1980
_MEMORY_CLOCK_MHZ = 2619
_DRIVER_MEMORY_MIB = 4.0
# How fast power and heat follow: after this many seconds they have gone 63 % of the way.
_POWER_LAG_S = 3.0
_HEAT_LAG_S = 75.0
_DEGREES_PER_WATT = 0.068
_THROTTLE_FROM_C = 87.0
_NVLINK_MB_PER_S = 60_000.0
_XID_CODES = (13, 31, 43, 45, 48, 63, 74, 79, 94)
# Counters count from when the machines were set up.
_SET_UP_S = 1_735_689_600


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

    def measure(self, now_s: float, job: Job | None, faults: list[Fault]) -> tuple[float, ...]:
        """The values of MEASURED at a later moment. Time in which nobody looked passes as if all stayed the same."""
        elapsed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        active = {fault.kind: fault for fault in faults}
        utilisation = self._utilisation(now_s, job, active)
        clock_mhz = self._clock(job, utilisation, active)
        self._draw(elapsed_s, utilisation, clock_mhz, active)
        self._heat(elapsed_s, active)
        self._count(elapsed_s, job, utilisation)
        used_mib = self._memory(now_s, job, active)
        xid = self._xid(active)
        return (
            round(utilisation),
            round(utilisation * (0.55 if job and job.kind is JobKind.TRAINING else 0.3)),
            0,
            0,
            clock_mhz,
            _MEMORY_CLOCK_MHZ,
            round(self._temperature_c),
            round(self._temperature_c + 4 + 0.012 * self._power_w),
            round(self._power_w, 3),
            round(used_mib),
            MEMORY_MIB - round(used_mib),
            xid,
            round(self._energy_mj),
            self._replays,
            round(self._nvlink_mb),
        )

    def _utilisation(self, now_s: float, job: Job | None, active: dict[FaultKind, Fault]) -> float:
        if job is None or FaultKind.UTILISATION_COLLAPSE in active:
            return 0.0
        wanted = job.utilisation(now_s)
        return min(100.0, max(0.0, wanted + self._noise.gauss(0, 2.5))) if wanted else 0.0

    def _clock(self, job: Job | None, utilisation: float, active: dict[FaultKind, Fault]) -> int:
        if job is None:
            return _IDLE_CLOCK_MHZ
        too_hot = self._temperature_c - _THROTTLE_FROM_C
        if FaultKind.THERMAL_THROTTLE in active and too_hot > 0:
            return max(1_000, _FULL_CLOCK_MHZ - round(too_hot * 110 / 15) * 15)
        return _FULL_CLOCK_MHZ - round(utilisation * 1.2 / 15) * 15

    def _draw(
        self, elapsed_s: float, utilisation: float, clock_mhz: int, active: dict[FaultKind, Fault]
    ) -> None:
        work = (utilisation / 100) ** 0.85 * (clock_mhz / _FULL_CLOCK_MHZ) ** 0.6
        target_w = self._efficiency * (_IDLE_POWER_W + (_FULL_POWER_W - _IDLE_POWER_W) * work)
        target_w *= 1 + self._noise.gauss(0, 0.012)
        excursion = active.get(FaultKind.POWER_EXCURSION)
        if excursion is not None:
            target_w = POWER_LIMIT_W * (1.06 + 0.18 * excursion.strength)
        else:
            target_w = min(target_w, POWER_LIMIT_W)
        self._power_w = self._follow(self._power_w, target_w, elapsed_s, _POWER_LAG_S)

    def _heat(self, elapsed_s: float, active: dict[FaultKind, Fault]) -> None:
        target_c = self._inlet_c + _DEGREES_PER_WATT * self._power_w
        cooling = active.get(FaultKind.THERMAL_THROTTLE)
        if cooling is not None:
            # Hot air comes back in; a strong fault takes the GPU past 92 degrees even at its lowest clock.
            target_c = max(target_c + 24, 89.0) + 8 * cooling.strength
        self._temperature_c = min(self._follow(self._temperature_c, target_c, elapsed_s, _HEAT_LAG_S), 99.0)
        self._is_settled = True

    def _follow(self, now: float, target: float, elapsed_s: float, lag_s: float) -> float:
        """What is measured first has long been as it is."""
        if not self._is_settled:
            return target
        return target + (now - target) * math.exp(-elapsed_s / lag_s)

    def _count(self, elapsed_s: float, job: Job | None, utilisation: float) -> None:
        self._energy_mj += self._power_w * elapsed_s * 1_000
        if job is not None and job.kind is JobKind.TRAINING:
            self._nvlink_mb += utilisation / 100 * _NVLINK_MB_PER_S * elapsed_s
        if self._noise.random() < elapsed_s * 2e-6:
            self._replays += 1

    def _memory(self, now_s: float, job: Job | None, active: dict[FaultKind, Fault]) -> float:
        used_mib = _DRIVER_MEMORY_MIB
        if job is not None:
            # It is taken over the first minute and then held.
            used_mib += job.memory_mib * min(1.0, (now_s - job.start_s + 1) / 60)
        leak = active.get(FaultKind.MEMORY_LEAK)
        if leak is not None:
            # Between 6 and 14 GiB an hour.
            used_mib += (now_s - leak.start_s) / 3600 * (6 + 8 * leak.strength) * 1024
        return min(used_mib, MEMORY_MIB - 40.0)

    def _xid(self, active: dict[FaultKind, Fault]) -> int:
        if FaultKind.XID_BURST in active and self._noise.random() < 0.6:
            return self._noise.choice(_XID_CODES)
        return 0
