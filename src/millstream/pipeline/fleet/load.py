"""What the GPUs are busy with: jobs that come and go, more by day and on working days."""

import math
import random
from dataclasses import dataclass
from enum import StrEnum

from millstream.pipeline.fleet.dice import dice
from millstream.pipeline.fleet.inventory import GPUS_PER_HOST, MEMORY_MIB, Gpu

DAY_S = 86_400
_PEAK_HOUR = 15
_SHORTEST_SLOT_S = 3_600
_LONGEST_SLOT_S = 4 * 3_600
# 1970-01-01 was a Thursday.
_WEEKDAY_OF_DAY_ZERO = 3


class JobKind(StrEnum):
    TRAINING = "training"
    INFERENCE = "inference"
    NOTEBOOK = "notebook"


@dataclass(frozen=True, slots=True)
class Job:
    """Work that holds a GPU from `start_s` to `end_s`; `intensity` is its share of the GPU's time (0 to 1)."""

    kind: JobKind
    name: str
    start_s: float
    end_s: float
    intensity: float
    memory_mib: float

    @property
    def pod(self) -> str:
        return self.name

    @property
    def namespace(self) -> str:
        return {"training": "research", "inference": "serving", "notebook": "sandbox"}[self.kind]

    @property
    def container(self) -> str:
        return {"training": "trainer", "inference": "server", "notebook": "jupyter"}[self.kind]

    def utilisation(self, now_s: float) -> float:
        """Percent, before noise."""
        age_s = now_s - self.start_s
        match self.kind:
            case JobKind.TRAINING:
                # It loads data first, and writes a checkpoint every quarter of an hour.
                if age_s < 60 or age_s % 900 > 870:
                    return 12.0
                return 100 * self.intensity
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

    def job_of(self, gpu: Gpu) -> Job | None:
        return self.jobs[gpu.index]


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
    end_s = start_s + length_s
    if chance.random() < 0.45:
        job = _training(chance, start_s, end_s) if chance.random() < wanted else None
        return Slot(end_s, (job,) * GPUS_PER_HOST)
    jobs = (
        _small(chance, start_s, end_s) if chance.random() < wanted else None for _ in range(GPUS_PER_HOST)
    )
    return Slot(end_s, tuple(jobs))


def _training(chance: random.Random, start_s: float, end_s: float) -> Job:
    return Job(
        JobKind.TRAINING,
        f"train-{chance.getrandbits(24):06x}",
        start_s,
        end_s,
        intensity=chance.uniform(0.82, 1.0),
        memory_mib=MEMORY_MIB * chance.uniform(0.6, 0.95),
    )


def _small(chance: random.Random, start_s: float, end_s: float) -> Job:
    kind = JobKind.INFERENCE if chance.random() < 0.65 else JobKind.NOTEBOOK
    busy = chance.uniform(0.35, 0.95) if kind is JobKind.INFERENCE else chance.uniform(0.1, 0.45)
    return Job(
        kind,
        f"{kind}-{chance.getrandbits(24):06x}",
        start_s,
        end_s,
        intensity=busy,
        memory_mib=MEMORY_MIB * chance.uniform(0.05, 0.7),
    )
