from millstream.pipeline.fleet import DAY_S, Fault, FaultKind, faults_of, gpus_of_fleet

START_S = 1_772_409_600
GPUS = gpus_of_fleet(4, seed=1)


def faults_of_a_morning(seed: int, level: float) -> set[tuple[str, FaultKind, Fault]]:
    return {
        (gpu.hostname if kind is FaultKind.DEAD_HOST else gpu.uuid, kind, fault)
        for gpu in GPUS
        for now_s in range(START_S, START_S + DAY_S // 4, 60)
        for kind, fault in faults_of(seed, level, gpu, now_s).items()
    }


def test_a_lively_morning_has_every_kind_of_fault() -> None:
    assert {kind for _, kind, _ in faults_of_a_morning(1, level=100)} == set(FaultKind)


def test_there_are_fewer_faults_at_a_lower_level_and_none_at_zero() -> None:
    many, few = (len(faults_of_a_morning(1, level)) for level in (100, 5))
    assert many > 3 * few > 0
    assert faults_of_a_morning(1, 0) == set()


def test_faults_depend_on_the_seed_alone() -> None:
    once, again, other = (faults_of_a_morning(seed, 50) for seed in (1, 1, 2))
    assert once == again != other


def test_a_fault_is_there_from_its_start_to_its_end() -> None:
    machine, kind, fault = min(faults_of_a_morning(1, 50))
    gpu = next(gpu for gpu in GPUS if machine in (gpu.uuid, gpu.hostname))
    before, first, last, after = (
        faults_of(1, 50, gpu, now_s).get(kind)
        for now_s in (fault.start_s - 1, fault.start_s, fault.end_s - 1, fault.end_s)
    )
    assert first == last == fault
    assert fault not in (before, after)


def test_a_dead_host_is_dead_for_all_its_gpus() -> None:
    host, _, fault = next(each for each in faults_of_a_morning(1, 100) if each[1] is FaultKind.DEAD_HOST)
    seen = [
        faults_of(1, 100, gpu, fault.start_s).get(FaultKind.DEAD_HOST) for gpu in GPUS if gpu.hostname == host
    ]
    assert seen == [fault] * 8
