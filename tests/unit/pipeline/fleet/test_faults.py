import pytest

from millstream.pipeline.fleet.load import DAY_S, Fault, FaultKind, FaultPlan, gpus_of_fleet

START_S = 1_772_409_600
GPUS = gpus_of_fleet(4, seed=1)


def faults_of_a_morning(plan: FaultPlan) -> set[Fault]:
    found: set[Fault] = set()
    for gpu in GPUS:
        now_s = float(START_S)
        while now_s < START_S + DAY_S / 4:
            active, until_s = plan.around(gpu, now_s)
            assert until_s > now_s
            found.update(active)
            now_s = until_s
    return found


def test_a_lively_morning_has_every_kind_of_fault() -> None:
    assert {fault.kind for fault in faults_of_a_morning(FaultPlan(seed=1, level=100))} == set(FaultKind)


def test_there_are_fewer_faults_at_a_lower_level_and_none_at_zero() -> None:
    many, few = (len(faults_of_a_morning(FaultPlan(1, level))) for level in (100, 5))
    assert many > 3 * few > 0
    assert faults_of_a_morning(FaultPlan(1, 0)) == set()


def test_faults_depend_on_the_seed_alone() -> None:
    once, again, other = (faults_of_a_morning(FaultPlan(seed, 50)) for seed in (1, 1, 2))
    assert once == again != other


def test_what_is_active_stays_so_until_the_time_told() -> None:
    plan = FaultPlan(1, 100)
    for gpu in GPUS[:4]:
        active, until_s = plan.around(gpu, START_S)
        for moment in (START_S, (START_S + until_s) / 2, until_s - 0.001):
            assert plan.around(gpu, moment)[0] == active


@pytest.mark.parametrize("machine", [GPUS[0].uuid, GPUS[0].hostname])
def test_a_planned_fault_happens_when_and_where_it_is_planned(machine: str) -> None:
    fault = Fault(FaultKind.DEAD_HOST, machine, START_S + 10, START_S + 20)
    plan = FaultPlan(1, level=0, planned=(fault,))
    assert plan.around(GPUS[0], START_S) == ([], START_S + 10)
    assert plan.around(GPUS[0], START_S + 10) == ([fault], START_S + 20)
    assert plan.around(GPUS[0], START_S + 20)[0] == []
    assert plan.around(GPUS[8], START_S + 10)[0] == []
