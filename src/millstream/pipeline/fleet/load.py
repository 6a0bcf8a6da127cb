"""The machines of a fleet, the jobs that come and go on them, and what goes wrong, when and where."""

import math
import random
import uuid
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Self

GPUS_PER_HOST = 8
MODEL_NAME = "NVIDIA H100 80GB HBM3"
MEMORY_MIB = 81_007
POWER_LIMIT_W = 700.0
DRIVER_VERSION = "535.129.03"

DAY_S = 86_400
_PEAK_HOUR = 15
_SHORTEST_SLOT_S = 3_600
_LONGEST_SLOT_S = 4 * 3_600
# 1970-01-01 was a Thursday.
_WEEKDAY_OF_DAY_ZERO = 3
_LARGEST_CHANCE = 0.5


def dice(*what: object) -> random.Random:
    """Chance that is the same in every process: it depends on `what` alone, such as `(seed, "job", hostname, slot)`."""
    return random.Random(_digest(what))  # noqa: S311 - a simulation keeps no secrets


def _digest(what: tuple[object, ...]) -> bytes:
    return blake2b("/".join(map(str, what)).encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Share:
    """How several streamers share the GPUs: the part of instance `number` (from 1) of `total`."""

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


@lru_cache(maxsize=1 << 17)
def _number_of(uuid: str) -> int:
    # Well mixed also for names that differ in a digit, which a checksum is not.
    return int.from_bytes(blake2b(uuid.encode(), digest_size=8).digest())


@dataclass(frozen=True, slots=True)
class Gpu:
    """`index` is its number in its host, `place` its number in the fleet."""

    uuid: str
    index: int
    place: int
    hostname: str


def gpus_of_fleet(hosts: int, seed: int) -> list[Gpu]:
    """All GPUs, host by host. The first hosts of a larger fleet are those of a smaller one."""
    return [
        Gpu(
            uuid=f"GPU-{uuid.UUID(bytes=_digest((seed, 'gpu', host, index)), version=4)}",
            index=index,
            place=host * GPUS_PER_HOST + index,
            hostname=f"gpu-host-{host + 1:04d}",
        )
        for host in range(hosts)
        for index in range(GPUS_PER_HOST)
    ]


class JobKind(StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"
    NOTEBOOK = "notebook"


_NAMESPACES = {JobKind.TRAINING: "research", JobKind.INFERENCE: "serving", JobKind.NOTEBOOK: "sandbox"}
_CONTAINERS = {JobKind.TRAINING: "trainer", JobKind.INFERENCE: "server", JobKind.NOTEBOOK: "jupyter"}


@dataclass(frozen=True, slots=True)
class Job:
    """Work that holds a GPU from `start_s` to `end_s`; `intensity` is its share of the GPU's time (0 to 1)."""

    kind: JobKind
    pod: str
    start_s: float
    end_s: float
    intensity: float
    memory_mib: float

    @property
    def namespace(self) -> str:
        return _NAMESPACES[self.kind]

    @property
    def container(self) -> str:
        return _CONTAINERS[self.kind]

    def utilisation(self, now_s: float) -> float:
        """Percent, before noise."""
        age_s = now_s - self.start_s
        match self.kind:
            case JobKind.TRAINING:
                # It loads data first, and writes a checkpoint every quarter of an hour.
                return 12.0 if age_s < 60 or age_s % 900 > 870 else 100 * self.intensity
            case JobKind.INFERENCE:
                return 100 * self.intensity * (0.35 + 0.65 * daily_load(now_s))
            case JobKind.NOTEBOOK:
                # Somebody runs a cell, looks, thinks; never so long that it looks like a job that hangs.
                return 100 * self.intensity if age_s % 240 < 90 else 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A stretch of a host's time with the job of each of its GPUs, or None."""

    end_s: float
    jobs: tuple[Job | None, ...]


def daily_load(now_s: float) -> float:
    """How much the fleet is wanted (0 to 1): a smooth day with its peak in the afternoon, a quiet weekend."""
    hour = now_s % DAY_S / 3600
    day = 0.5 + 0.5 * math.cos((hour - _PEAK_HOUR) / 24 * 2 * math.pi)
    weekday = (int(now_s // DAY_S) + _WEEKDAY_OF_DAY_ZERO) % 7
    return (0.3 + 0.7 * day) * (0.55 if weekday >= 5 else 1.0)


def slot_at(seed: int, hostname: str, now_s: float) -> Slot:
    """The slot of a host that holds a moment; slots of different hosts differ in length and never end together."""
    host = dice(seed, "slots", hostname)
    length_s = host.randint(_SHORTEST_SLOT_S, _LONGEST_SLOT_S)
    offset_s = host.randrange(length_s)
    number = int((now_s + offset_s) // length_s)
    start_s = number * length_s - offset_s
    chance = dice(seed, "jobs", hostname, number)
    wanted = 0.25 + 0.7 * daily_load(start_s + length_s / 2)

    def job(kind: JobKind, intensity: tuple[float, float], memory: tuple[float, float]) -> Job:
        name = "train" if kind is JobKind.TRAINING else kind
        return Job(
            kind, f"{name}-{chance.getrandbits(24):06x}", start_s, start_s + length_s,
            chance.uniform(*intensity), MEMORY_MIB * chance.uniform(*memory),
        )  # fmt: skip

    def small() -> Job:
        if chance.random() < 0.65:
            return job(JobKind.INFERENCE, (0.35, 0.95), (0.05, 0.7))
        return job(JobKind.NOTEBOOK, (0.1, 0.45), (0.05, 0.7))

    if chance.random() < 0.45:
        whole = job(JobKind.TRAINING, (0.82, 1.0), (0.6, 0.95)) if chance.random() < wanted else None
        return Slot(start_s + length_s, (whole,) * GPUS_PER_HOST)
    jobs = tuple(small() if chance.random() < wanted else None for _ in range(GPUS_PER_HOST))
    return Slot(start_s + length_s, jobs)


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


# How often a kind of fault begins, for each machine and day, and how many seconds it lasts at least and at most.
_HABITS = {
    FaultKind.XID_BURST: (0.03, 120, 420),
    FaultKind.THERMAL_THROTTLE: (0.04, 360, 1_200),
    FaultKind.POWER_EXCURSION: (0.03, 240, 600),
    FaultKind.UTILISATION_COLLAPSE: (0.03, 600, 1_800),
    FaultKind.MEMORY_LEAK: (0.02, 2_700, 5_400),
    FaultKind.DEAD_GPU: (0.01, 900, 3_600),
    FaultKind.DEAD_HOST: (0.02, 600, 2_700),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """`machine` is a GPU's uuid, or a hostname for a dead host. `strength` is 0 (barely) to 1 (badly)."""

    kind: FaultKind
    machine: str
    start_s: float
    end_s: float
    strength: float = 0.5

    def is_active(self, now_s: float) -> bool:
        return self.start_s <= now_s < self.end_s


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which faults there are: those left to chance, `level` times as many as in a real fleet, and planned ones."""

    seed: int
    level: float = 1.0
    planned: tuple[Fault, ...] = ()

    def around(self, gpu: Gpu, now_s: float) -> tuple[list[Fault], float]:
        """The faults of a GPU that are active now, and until when that stays so."""
        candidates = [fault for fault in self.planned if fault.machine in (gpu.uuid, gpu.hostname)]
        until_s = now_s + DAY_S
        for kind, (per_day, shortest_s, longest_s) in _HABITS.items() if self.level > 0 else ():
            # There is at most one of a kind in a slot, and it ends within it.
            slot_s = 2 * longest_s
            slot = int(now_s // slot_s)
            until_s = min(until_s, (slot + 1) * slot_s)
            machine = gpu.hostname if kind is FaultKind.DEAD_HOST else gpu.uuid
            chance = dice(self.seed, "fault", kind, machine, slot)
            if chance.random() < min(_LARGEST_CHANCE, self.level * per_day * slot_s / DAY_S):
                lasts_s = chance.randint(shortest_s, longest_s)
                start_s = slot * slot_s + chance.randrange(slot_s - lasts_s)
                candidates.append(Fault(kind, machine, start_s, start_s + lasts_s, chance.random()))
        active = [fault for fault in candidates if fault.is_active(now_s)]
        changes = (moment for fault in candidates for moment in (fault.start_s, fault.end_s))
        return active, min([until_s, *(moment for moment in changes if moment > now_s)])
