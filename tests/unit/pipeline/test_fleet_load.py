from itertools import groupby

from millstream.pipeline.fleet import DAY_S, INFERENCE, NOTEBOOK, TRAINING, daily_load, gpus_of_fleet, job_on

MONDAY_S = 1_772_409_600
SATURDAY_S = MONDAY_S + 5 * DAY_S
GPUS = gpus_of_fleet(20, seed=1)


def test_the_fleet_is_busiest_on_the_afternoons_of_working_days() -> None:
    by_hour = [daily_load(MONDAY_S + hour * 3600) for hour in range(24)]
    assert by_hour.index(max(by_hour)) == 15
    assert max(by_hour) > 2 * min(by_hour)
    assert daily_load(SATURDAY_S + 15 * 3600) < 0.7 * max(by_hour)
    assert all(0 <= load <= 1 for load in by_hour)


def test_a_job_lasts_an_hour_at_least_and_is_the_same_whenever_it_is_asked_for() -> None:
    for gpu in GPUS:
        jobs = [job_on(1, gpu, MONDAY_S + minute * 60) for minute in range(24 * 60)]
        assert jobs == [job_on(1, gpu, MONDAY_S + minute * 60) for minute in range(24 * 60)]
        lengths = [len(list(run)) for _, run in groupby(jobs)]
        assert min(lengths[1:-1]) >= 60
        assert len(lengths) > 2


def test_hosts_have_jobs_of_every_kind_over_a_day() -> None:
    jobs = [job_on(1, gpu, MONDAY_S + hour * 3600) for hour in range(24) for gpu in GPUS]
    assert {job.kind if job else None for job in jobs} == {TRAINING, INFERENCE, NOTEBOOK, None}


def test_a_training_job_holds_all_gpus_of_its_host() -> None:
    by_host = {
        host: {job_on(1, gpu, MONDAY_S) for gpu in of_host}
        for host, of_host in groupby(GPUS, key=lambda gpu: gpu.hostname)
    }
    trainings = [jobs for jobs in by_host.values() if any(job and job.kind is TRAINING for job in jobs)]
    assert trainings
    assert all(len(jobs) == 1 for jobs in trainings)
