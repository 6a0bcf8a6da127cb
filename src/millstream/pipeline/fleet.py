"""A simulated fleet of GPUs: the jobs that come and go on its hosts, the faults, and the reports of each GPU.

Everything is a function of the seed and of time, so that several instances can share a fleet and a test can reproduce
it. Nothing here uses a clock, a file or a socket.
"""

import math
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import count
from typing import NamedTuple, Self

import msgspec

from millstream.pipeline import metrics
from millstream.pipeline.record import RecordForm, RecordTemplate, TelemetryRecord, format_time

POINTS_PER_REPORT = 15
GPUS_PER_HOST = 8
MEMORY_MIB = 81_007
POWER_LIMIT_W = 700.0
DAY_S = 86_400
_MODEL_NAME, _DRIVER_VERSION = "NVIDIA H100 80GB HBM3", "535.129.03"
_IDLE_POWER_W, _FULL_POWER_W = 68.0, 690.0
_IDLE_CLOCK_MHZ, _FULL_CLOCK_MHZ, _MEMORY_CLOCK_MHZ = 345, 1980, 2619
# The time constants of power and heat: after this many seconds they have gone 63 % of the way to the target.
_POWER_LAG_S, _HEAT_LAG_S = 3.0, 75.0
_DEGREES_PER_WATT = 0.068
_THROTTLE_FROM_C = 87.0
_XID_CODES = (13, 31, 43, 45, 48, 63, 74, 79, 94)
_LARGEST_CHANCE = 0.5
_REMEMBERED = 1 << 17


def _dice(*what: object) -> random.Random:
    """Randomness that is the same in every process: it depends only on `what`, such as `(seed, "jobs", hostname)`."""
    return random.Random("/".join(map(str, what)))  # noqa: S311 - a simulation keeps no secrets


@lru_cache(_REMEMBERED)
def _number_of(uuid: str) -> int:
    return _dice(uuid).getrandbits(64)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the GPUs that streamer `number` (from 1) of `total` streamers reports for."""

    number: int = 1
    total: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """`2/3` is the second of three."""
        number, slash, total = text.partition("/")
        if not (slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
            raise ValueError(f"{text!r} is not of the form 1/3, the first of three instances")
        return cls(int(number), int(total))

    def holds(self, uuid: str) -> bool:
        return self.total == 1 or _number_of(uuid) % self.total == self.number - 1


EVERYTHING = Share()


@dataclass(frozen=True, slots=True)
class Gpu:
    """`index` is the GPU's number in its host, `place` its number in the fleet."""

    uuid: str
    index: int
    place: int
    hostname: str


def gpus_of_fleet(hosts: int, seed: int) -> list[Gpu]:
    """All GPUs, host by host. A larger fleet begins with the same hosts as a smaller one."""
    numbers = ((place, *divmod(place, GPUS_PER_HOST)) for place in range(hosts * GPUS_PER_HOST))
    return [
        Gpu(f"GPU-{_uuid(seed, host, index)}", index, place, f"gpu-host-{host + 1:04d}")
        for place, host, index in numbers
    ]


def _uuid(*what: object) -> uuid.UUID:
    return uuid.UUID(int=_dice("gpu", *what).getrandbits(128), version=4)


class JobKind(NamedTuple):
    """A kind of job: its names, and the bounds of a job's share of the GPU's time and memory."""

    name: str
    namespace: str
    container: str
    intensity: tuple[float, float]
    memory: tuple[float, float]


TRAINING = JobKind("train", "research", "trainer", (0.82, 1.0), (0.6, 0.95))
INFERENCE = JobKind("inference", "serving", "server", (0.35, 0.95), (0.05, 0.7))
NOTEBOOK = JobKind("notebook", "sandbox", "jupyter", (0.1, 0.45), (0.05, 0.7))


class Job(NamedTuple):
    kind: JobKind
    pod: str
    start_s: float
    intensity: float
    memory_mib: float

    def utilisation(self, now_s: float) -> float:
        """Percent, before noise."""
        age_s, full = now_s - self.start_s, 100 * self.intensity
        if self.kind is TRAINING:
            # A training job loads data first, and writes a checkpoint every quarter of an hour.
            return 12.0 if age_s < 60 or age_s % 900 > 870 else full
        if self.kind is INFERENCE:
            return full * (0.35 + 0.65 * daily_load(now_s))
        # A notebook's user runs a cell and pauses, but never so long that the job seems to hang.
        return full if age_s % 240 < 90 else 0.0


def daily_load(now_s: float) -> float:
    """The demand for the fleet (0 to 1): a smooth day with its peak at 15:00, and a quiet weekend."""
    days, second = divmod(now_s, DAY_S)
    day = 0.5 + 0.5 * math.cos((second / 3600 - 15) / 24 * 2 * math.pi)
    # 1970-01-01 was a Thursday.
    return (0.3 + 0.7 * day) * (0.55 if (days + 3) % 7 >= 5 else 1.0)


def job_on(seed: int, gpu: Gpu, now_s: float) -> Job | None:
    """The job on a GPU, if any. Jobs of one host begin and end together; those of different hosts do not."""
    length_s, offset_s = _rhythm(seed, gpu.hostname)
    return _jobs(seed, gpu.hostname, int((now_s + offset_s) // length_s))[gpu.index]


@lru_cache(_REMEMBERED)
def _rhythm(seed: int, hostname: str) -> tuple[int, int]:
    """The length of a host's jobs, and the offset of their start."""
    host = _dice(seed, "rhythm", hostname)
    return host.randint(3_600, 4 * 3_600), host.randrange(3_600)


@lru_cache(_REMEMBERED)
def _jobs(seed: int, hostname: str, number: int) -> list[Job | None]:
    """Either one training job on all GPUs of the host, or a small job or none on each GPU."""
    length_s, offset_s = _rhythm(seed, hostname)
    start_s, chance = number * length_s - offset_s, _dice(seed, "jobs", hostname, number)
    wanted = 0.25 + 0.7 * daily_load(start_s + length_s / 2)

    def job(kind: JobKind) -> Job | None:
        if chance.random() >= wanted:
            return None
        pod = f"{kind.name}-{chance.getrandbits(24):06x}"
        return Job(
            kind, pod, start_s, chance.uniform(*kind.intensity), MEMORY_MIB * chance.uniform(*kind.memory)
        )

    if chance.random() < 0.45:
        return [job(TRAINING)] * GPUS_PER_HOST
    return [job(INFERENCE if chance.random() < 0.65 else NOTEBOOK) for _ in range(GPUS_PER_HOST)]


class FaultKind(StrEnum):
    XID_BURST = "xid_burst"
    """The driver reports errors, one after the other."""
    THERMAL_THROTTLE = "thermal_throttle"
    """Cooling fails; the GPU gets hot and lowers its clock."""
    POWER_EXCURSION = "power_excursion"
    """The GPU draws more than its limit."""
    UTILISATION_COLLAPSE = "utilisation_collapse"
    """The job hangs: no work is done, but its memory is held."""
    MEMORY_LEAK = "memory_leak"
    """Memory grows until it is all used."""
    DEAD_GPU = "dead_gpu"
    """The GPU has fallen off the bus and reports nothing."""
    DEAD_HOST = "dead_host"
    """No GPU of the host reports anything."""


# For each kind of fault: how often it begins per machine and day, and its shortest and longest duration in seconds.
_HABITS = {
    FaultKind.XID_BURST: (0.03, 120, 420),
    FaultKind.THERMAL_THROTTLE: (0.04, 360, 1_200),
    FaultKind.POWER_EXCURSION: (0.03, 240, 600),
    FaultKind.UTILISATION_COLLAPSE: (0.03, 600, 1_800),
    FaultKind.MEMORY_LEAK: (0.02, 2_700, 5_400),
    FaultKind.DEAD_GPU: (0.01, 900, 3_600),
    FaultKind.DEAD_HOST: (0.02, 600, 2_700),
}


class Fault(NamedTuple):
    """`strength` is 0 (barely) to 1 (badly)."""

    start_s: float
    end_s: float
    strength: float = 0.5


Faults = dict[FaultKind, Fault]


def faults_of(seed: int, level: float, gpu: Gpu, now_s: float) -> Faults:
    """The present faults of a GPU, with `level` times as many faults as in a real fleet."""
    found: Faults = {}
    for kind, (_, _, longest_s) in _HABITS.items() if level > 0 else ():
        machine = gpu.hostname if kind is FaultKind.DEAD_HOST else gpu.uuid
        fault = _fault(seed, level, kind, machine, int(now_s // (2 * longest_s)))
        if fault is not None and fault.start_s <= now_s < fault.end_s:
            found[kind] = fault
    return found


@lru_cache(_REMEMBERED)
def _fault(seed: int, level: float, kind: FaultKind, machine: str, slot: int) -> Fault | None:
    """The fault of this kind in a slot of time, if any: at most one, which ends within the slot."""
    per_day, shortest_s, longest_s = _HABITS[kind]
    slot_s, chance = 2 * longest_s, _dice(seed, "fault", kind, machine, slot)
    if chance.random() >= min(_LARGEST_CHANCE, level * per_day * slot_s / DAY_S):
        return None
    lasts_s = chance.randint(shortest_s, longest_s)
    start_s = slot * slot_s + chance.randrange(slot_s - lasts_s)
    return Fault(start_s, start_s + lasts_s, chance.random())


class SimulatedGpu:
    """The state of a GPU between measurements: power, heat, and counters."""

    def __init__(self, gpu: Gpu, seed: int, start_s: float) -> None:
        self.gpu = gpu
        self._noise = _dice(seed, "noise", gpu.uuid)
        # GPUs at the back of the host get air that the others have warmed.
        self._inlet_c = 23.0 + _dice(seed, "room", gpu.hostname).uniform(0, 4) + 0.7 * (gpu.index % 4)
        self._efficiency = self._noise.uniform(0.97, 1.03)
        self._at_s = start_s
        self._power_w = self._heat_c = math.nan
        # Counters started when the machines were set up, at the beginning of 2025.
        up_s = max(0.0, start_s - 1_735_689_600)
        self._replays = self._noise.randrange(40)
        self._energy_mj = up_s * self._noise.uniform(250_000, 350_000)
        self._nvlink_mb = up_s * self._noise.uniform(5_000, 15_000)

    def measure(self, now_s: float, job: Job | None, faults: Faults) -> dict[str, float]:
        """The values by metric at a later moment. Power is taken as constant since the last measurement."""
        elapsed_s, self._at_s = max(0.0, now_s - self._at_s), now_s
        wanted = 0.0 if job is None or FaultKind.UTILISATION_COLLAPSE in faults else job.utilisation(now_s)
        utilisation = min(100.0, max(0.0, wanted + self._noise.gauss(0, 2.5))) if wanted else 0.0
        clock_mhz = _IDLE_CLOCK_MHZ if job is None else self._clock(utilisation, faults)
        self._draw_and_heat(elapsed_s, utilisation, clock_mhz, faults)
        trains = job is not None and job.kind is TRAINING
        self._energy_mj += self._power_w * elapsed_s * 1_000
        self._nvlink_mb += trains * utilisation * 600 * elapsed_s
        self._replays += self._noise.random() < elapsed_s * 2e-6
        used_mib = round(_memory(now_s, job, faults.get(FaultKind.MEMORY_LEAK)))
        has_error = FaultKind.XID_BURST in faults and self._noise.random() < 0.6
        return {
            metrics.GPU_UTIL: round(utilisation),
            metrics.MEM_COPY_UTIL: round(utilisation * (0.55 if trains else 0.3)),
            metrics.ENC_UTIL: 0,
            metrics.DEC_UTIL: 0,
            metrics.SM_CLOCK: clock_mhz,
            metrics.MEM_CLOCK: _MEMORY_CLOCK_MHZ,
            metrics.GPU_TEMP: round(self._heat_c),
            metrics.MEMORY_TEMP: round(self._heat_c + 4 + 0.012 * self._power_w),
            metrics.POWER_USAGE: round(self._power_w, 3),
            metrics.FB_USED: used_mib,
            metrics.FB_FREE: MEMORY_MIB - used_mib,
            metrics.XID_ERRORS: self._noise.choice(_XID_CODES) if has_error else 0,
            metrics.TOTAL_ENERGY_CONSUMPTION: round(self._energy_mj),
            metrics.PCIE_REPLAY_COUNTER: self._replays,
            metrics.NVLINK_BANDWIDTH_TOTAL: round(self._nvlink_mb),
        }

    def _clock(self, utilisation: float, faults: Faults) -> int:
        too_hot = self._heat_c - _THROTTLE_FROM_C
        if FaultKind.THERMAL_THROTTLE in faults and too_hot > 0:
            return max(1_000, _FULL_CLOCK_MHZ - round(too_hot * 110 / 15) * 15)
        return _FULL_CLOCK_MHZ - round(utilisation * 1.2 / 15) * 15

    def _draw_and_heat(self, elapsed_s: float, utilisation: float, clock_mhz: int, faults: Faults) -> None:
        work = (utilisation / 100) ** 0.85 * (clock_mhz / _FULL_CLOCK_MHZ) ** 0.6
        target_w = self._efficiency * (_IDLE_POWER_W + (_FULL_POWER_W - _IDLE_POWER_W) * work)
        target_w = min(target_w * (1 + self._noise.gauss(0, 0.012)), POWER_LIMIT_W)
        if (excursion := faults.get(FaultKind.POWER_EXCURSION)) is not None:
            target_w = POWER_LIMIT_W * (1.06 + 0.18 * excursion.strength)
        self._power_w = _follow(self._power_w, target_w, elapsed_s / _POWER_LAG_S)
        target_c = self._inlet_c + _DEGREES_PER_WATT * self._power_w
        if (cooling := faults.get(FaultKind.THERMAL_THROTTLE)) is not None:
            # Hot air recirculates; a strong fault takes the GPU past 92 degrees even at its lowest clock.
            target_c = max(target_c + 24, 89.0) + 8 * cooling.strength
        self._heat_c = min(_follow(self._heat_c, target_c, elapsed_s / _HEAT_LAG_S), 99.0)


def _follow(now: float, target: float, lags: float) -> float:
    """Moves a value exponentially towards its target; the first value starts at the target."""
    return target if math.isnan(now) else target + (now - target) * math.exp(-lags)


def _memory(now_s: float, job: Job | None, leak: Fault | None) -> float:
    """Used memory in MiB: 4 for the driver, a job's own (reached in a minute), and a leak of 6 to 14 GiB an hour."""
    held = 0.0 if job is None else job.memory_mib * min(1.0, (now_s - job.start_s + 1) / 60)
    leaked = 0.0 if leak is None else (now_s - leak.start_s) / 3600 * (6 + 8 * leak.strength) * 1024
    return min(4.0 + held + leaked, MEMORY_MIB - 40.0)


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet of `hosts` with eight GPUs each; `share` is the part that this instance reports for."""

    hosts: int
    seed: int = 1
    faults: float = 1.0
    """The rate of faults, as a multiple of a real fleet's."""
    interval_ms: float = 10_000
    form: RecordForm = RecordForm.FLAT
    share: Share = EVERYTHING


class Report(NamedTuple):
    """The report of one GPU at one moment: a JSON record for each metric."""

    time_ms: int
    uuid: str
    records: list[bytes]


class Fleet:
    """The GPUs of one share. Their values depend on the seed, the time of the first report, and the interval."""

    def __init__(self, settings: FleetSettings) -> None:
        self.settings = settings
        everywhere = gpus_of_fleet(settings.hosts, settings.seed)
        self._size = len(everywhere)
        self.gpus = [gpu for gpu in everywhere if settings.share.holds(gpu.uuid)]

    def reports(self, start_ms: int, end_ms: int | None = None) -> Iterator[Report]:
        """Reports with start_ms <= time < end_ms, in order of time; dead GPUs and hosts report nothing."""
        simulated = [SimulatedGpu(gpu, self.settings.seed, start_ms / 1000) for gpu in self.gpus]
        for tick in count() if simulated else ():
            for each in simulated:
                # Spread over the interval by the place in the whole fleet, so that times do not depend on the share.
                time_ms = start_ms + int((tick + each.gpu.place / self._size) * self.settings.interval_ms)
                if end_ms is not None and time_ms >= end_ms:
                    return
                faults = faults_of(self.settings.seed, self.settings.faults, each.gpu, time_ms / 1000)
                if not {FaultKind.DEAD_GPU, FaultKind.DEAD_HOST} & faults.keys():
                    yield self._report(each, time_ms, faults)

    def _report(self, simulated: SimulatedGpu, time_ms: int, faults: Faults) -> Report:
        gpu, timestamp = simulated.gpu, format_time(time_ms)
        job = job_on(self.settings.seed, gpu, time_ms / 1000)
        values = simulated.measure(time_ms / 1000, job, faults)
        templates = _templates(gpu, job, self.settings.form, tuple(values))
        filled = [
            template.fill(timestamp, value)
            for template, value in zip(templates, values.values(), strict=True)
        ]
        return Report(time_ms, gpu.uuid, filled)


@lru_cache(_REMEMBERED)
def _templates(gpu: Gpu, job: Job | None, form: RecordForm, names: tuple[str, ...]) -> list[RecordTemplate]:
    about = TelemetryRecord(
        time_ms=0,
        metric_name="",
        uuid=gpu.uuid,
        value=0.0,
        gpu_id=str(gpu.index),
        device=f"nvidia{gpu.index}",
        model_name=_MODEL_NAME,
        hostname=gpu.hostname,
        container=job.kind.container if job else "",
        pod=job.pod if job else "",
        namespace=job.kind.namespace if job else "",
        labels_raw=f'DCGM_FI_DRIVER_VERSION="{_DRIVER_VERSION}"',
    )
    return [RecordTemplate.of(msgspec.structs.replace(about, metric_name=name), form) for name in names]
