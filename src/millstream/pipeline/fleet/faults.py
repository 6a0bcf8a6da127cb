"""What goes wrong in a fleet, when, and on which machine."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from millstream.pipeline.fleet.dice import dice
from millstream.pipeline.fleet.inventory import Gpu
from millstream.pipeline.fleet.load import DAY_S

_LARGEST_CHANCE = 0.5


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


@dataclass(frozen=True, slots=True)
class _Habit:
    """How often a kind of fault begins, for each machine and day, and how long it lasts."""

    per_day: float
    shortest_s: int
    longest_s: int

    @property
    def slot_s(self) -> int:
        """There is at most one of a kind in a slot, and it ends within it."""
        return 2 * self.longest_s


_HABITS = {
    FaultKind.XID_BURST: _Habit(0.03, 120, 420),
    FaultKind.THERMAL_THROTTLE: _Habit(0.04, 360, 1_200),
    FaultKind.POWER_EXCURSION: _Habit(0.03, 240, 600),
    FaultKind.UTILISATION_COLLAPSE: _Habit(0.03, 600, 1_800),
    FaultKind.MEMORY_LEAK: _Habit(0.02, 2_700, 5_400),
    FaultKind.DEAD_GPU: _Habit(0.01, 900, 3_600),
    FaultKind.DEAD_HOST: _Habit(0.02, 600, 2_700),
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
        for kind, habit in _HABITS.items() if self.level > 0 else ():
            slot = int(now_s // habit.slot_s)
            until_s = min(until_s, (slot + 1) * habit.slot_s)
            machine = gpu.hostname if kind is FaultKind.DEAD_HOST else gpu.uuid
            candidates += self._by_chance(kind, habit, machine, slot)
        active = [fault for fault in candidates if fault.is_active(now_s)]
        return active, min(until_s, *_changes_after(now_s, candidates, until_s))

    def _by_chance(self, kind: FaultKind, habit: _Habit, machine: str, slot: int) -> list[Fault]:
        chance = dice(self.seed, "fault", kind, machine, slot)
        if chance.random() >= min(_LARGEST_CHANCE, self.level * habit.per_day * habit.slot_s / DAY_S):
            return []
        lasts_s = chance.randint(habit.shortest_s, habit.longest_s)
        start_s = slot * habit.slot_s + chance.randrange(habit.slot_s - lasts_s)
        return [Fault(kind, machine, start_s, start_s + lasts_s, chance.random())]


def _changes_after(now_s: float, faults: Iterable[Fault], otherwise_s: float) -> list[float]:
    moments = (moment for fault in faults for moment in (fault.start_s, fault.end_s))
    return [otherwise_s, *(moment for moment in moments if moment > now_s)]
