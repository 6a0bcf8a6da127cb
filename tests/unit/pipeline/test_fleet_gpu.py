from collections.abc import Callable

import pytest

from millstream.pipeline import fleet, metrics
from millstream.pipeline.declaration import DCGM
from millstream.pipeline.fleet import (
    MEMORY_MIB,
    POWER_LIMIT_W,
    Fault,
    FaultKind,
    Faults,
    Job,
    SimulatedGpu,
    gpus_of_fleet,
)

START_S = 1_772_409_600.0
GPU = gpus_of_fleet(1, seed=1)[0]
TRAINING = Job(fleet.TRAINING, "train-1", START_S - 3600, 0.95, 40_000)
INFERENCE = Job(fleet.INFERENCE, "inference-1", START_S - 3600, 0.7, 40_000)

Measure = Callable[[float, Job | None, Faults], dict[str, float]]


@pytest.fixture
def measure() -> Measure:
    gpu = SimulatedGpu(GPU, seed=1, start_s=START_S)

    def at(after_s: float, job: Job | None, faults: Faults) -> dict[str, float]:
        return gpu.measure(START_S + after_s, job, faults)

    return at


def fault(kind: FaultKind, strength: float = 0.5) -> Faults:
    return {kind: Fault(START_S, START_S + 7200, strength)}


def settle(measure: Measure, job: Job | None, faults: Faults, minutes: int = 12) -> dict[str, float]:
    """The last of measurements every ten seconds; twelve minutes end between two checkpoints of a training."""
    values: dict[str, float] = {}
    for second in range(0, minutes * 60, 10):
        values = measure(second, job, faults)
    return values


@pytest.mark.parametrize("job", [None, TRAINING, INFERENCE], ids=["idle", "training", "inference"])
@pytest.mark.parametrize("kind", [None, *FaultKind], ids=str)
def test_every_value_is_plausible(measure: Measure, job: Job | None, kind: FaultKind | None) -> None:
    faults = fault(kind, 1.0) if kind else {}
    for second in range(0, 7200, 60):
        for metric, value in measure(second, job, faults).items():
            known = DCGM.metrics[metric]
            assert known.minimum <= value <= known.maximum, (metric, value)


def test_an_idle_gpu_is_cool_and_draws_little(measure: Measure) -> None:
    values = settle(measure, None, {})
    assert values[metrics.GPU_UTIL] == 0
    assert values[metrics.POWER_USAGE] < 80
    assert values[metrics.GPU_TEMP] < 40
    assert values[metrics.FB_USED] < 10


def test_a_training_gpu_is_warm_and_draws_much(measure: Measure) -> None:
    values = settle(measure, TRAINING, {})
    assert values[metrics.GPU_UTIL] > 80
    assert 550 < values[metrics.POWER_USAGE] <= POWER_LIMIT_W
    assert 55 < values[metrics.GPU_TEMP] < 85
    assert values[metrics.FB_USED] + values[metrics.FB_FREE] == MEMORY_MIB


def test_heat_follows_load_slowly(measure: Measure) -> None:
    cool = settle(measure, None, {}, minutes=1)[metrics.GPU_TEMP]
    soon = measure(70, TRAINING, {})[metrics.GPU_TEMP]
    later = measure(700, TRAINING, {})[metrics.GPU_TEMP]
    assert cool <= soon < cool + 15
    assert later > soon + 15


def test_energy_is_the_power_over_time(measure: Measure) -> None:
    before = measure(0, None, {})[metrics.TOTAL_ENERGY_CONSUMPTION]
    after = measure(100, None, {})
    drawn_j = (after[metrics.TOTAL_ENERGY_CONSUMPTION] - before) / 1000
    assert drawn_j == pytest.approx(100 * after[metrics.POWER_USAGE], rel=0.01)


def test_failed_cooling_makes_it_hot_and_slow(measure: Measure) -> None:
    values = settle(measure, TRAINING, fault(FaultKind.THERMAL_THROTTLE, 1.0))
    assert values[metrics.GPU_TEMP] >= 92
    assert values[metrics.SM_CLOCK] < 1_700
    assert values[metrics.GPU_UTIL] > 80


def test_a_power_excursion_passes_the_limit(measure: Measure) -> None:
    assert (
        settle(measure, TRAINING, fault(FaultKind.POWER_EXCURSION))[metrics.POWER_USAGE]
        > 1.05 * POWER_LIMIT_W
    )


def test_a_collapse_ends_the_work_but_not_the_hold_on_memory(measure: Measure) -> None:
    values = settle(measure, TRAINING, fault(FaultKind.UTILISATION_COLLAPSE))
    assert values[metrics.GPU_UTIL] == 0
    assert values[metrics.FB_USED] > TRAINING.memory_mib


def test_a_leak_grows_until_memory_is_full(measure: Measure) -> None:
    used = [
        measure(second, INFERENCE, fault(FaultKind.MEMORY_LEAK, 1.0))[metrics.FB_USED]
        for second in (0, 1800, 3600)
    ]
    assert used[0] + 5_000 < used[1] < used[2] - 5_000
    assert measure(40_000, TRAINING, fault(FaultKind.MEMORY_LEAK))[metrics.FB_FREE] < 100


def test_a_burst_of_xids_is_several_of_them(measure: Measure) -> None:
    faults = fault(FaultKind.XID_BURST)
    codes = [measure(second, TRAINING, faults)[metrics.XID_ERRORS] for second in range(0, 300, 10)]
    assert sum(code > 0 for code in codes) >= 5
    assert measure(400, TRAINING, {})[metrics.XID_ERRORS] == 0
