from millstream.pipeline.fleet.load import DAY_S, JobKind, daily_load, gpus_of_fleet, slot_at

MONDAY_S = 1_772_409_600
SATURDAY_S = MONDAY_S + 5 * DAY_S


def test_the_fleet_is_busiest_on_the_afternoons_of_working_days() -> None:
    by_hour = [daily_load(MONDAY_S + hour * 3600) for hour in range(24)]
    assert by_hour.index(max(by_hour)) == 15
    assert max(by_hour) > 2 * min(by_hour)
    assert daily_load(SATURDAY_S + 15 * 3600) < 0.7 * max(by_hour)
    assert all(0 <= load <= 1 for load in by_hour)


def test_a_slot_lasts_until_its_end_and_is_the_same_whenever_it_is_asked_for() -> None:
    slot = slot_at(1, "h", MONDAY_S)
    assert slot.end_s > MONDAY_S
    assert slot_at(1, "h", slot.end_s - 1) == slot
    assert slot_at(1, "h", slot.end_s) != slot


def test_hosts_have_jobs_of_every_kind_over_a_day() -> None:
    gpus = gpus_of_fleet(20, seed=1)
    kinds = set()
    for hour in range(24):
        for gpu in gpus:
            job = slot_at(1, gpu.hostname, MONDAY_S + hour * 3600).jobs[gpu.index]
            kinds.add(job.kind if job else None)
    assert kinds == {*JobKind, None}


def test_a_training_job_holds_all_gpus_of_its_host() -> None:
    hosts = {gpu.hostname for gpu in gpus_of_fleet(30, seed=1)}
    trainings = [
        slot.jobs
        for slot in (slot_at(1, host, MONDAY_S) for host in hosts)
        if slot.jobs[0] is not None and slot.jobs[0].kind is JobKind.TRAINING
    ]
    assert trainings
    assert all(len(set(jobs)) == 1 for jobs in trainings)
