import json
from itertools import islice

import pytest

from millstream.pipeline.fleet import (
    POINTS_PER_REPORT,
    FaultKind,
    Fleet,
    FleetSettings,
    Report,
    Share,
    faults_of,
    gpus_of_fleet,
)
from millstream.pipeline.record import RecordForm, parse_time_ms

START_MS = 1_772_409_600_000
HOUR_MS = 3_600_000
NO_FAULTS = 0.0


def an_hour(**settings: object) -> list[Report]:
    chosen = FleetSettings(**{"hosts": 2, "faults": NO_FAULTS, "interval_ms": 60_000, **settings})
    return list(Fleet(chosen).reports(START_MS, START_MS + HOUR_MS))


def test_every_gpu_reports_every_metric_at_every_interval() -> None:
    reports = an_hour()
    assert len(reports) == 2 * 8 * 60
    assert {len(report.records) for report in reports} == {POINTS_PER_REPORT}
    assert [report.time_ms for report in reports] == sorted(report.time_ms for report in reports)
    record = json.loads(reports[0].records[0])
    assert record["uuid"] == reports[0].uuid
    assert parse_time_ms(record["timestamp"]) == reports[0].time_ms
    assert (record["Hostname"], record["device"], record["gpu_id"]) == ("gpu-host-0001", "nvidia0", "0")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert an_hour() == an_hour()
    assert an_hour() != an_hour(seed=2)


def test_shares_together_are_the_whole_fleet() -> None:
    parts = [an_hour(hosts=4, share=Share(number, 3)) for number in (1, 2, 3)]
    together = sorted((report for part in parts for report in part), key=lambda report: report.time_ms)
    assert together == an_hour(hosts=4)


def test_a_larger_fleet_has_the_hosts_of_a_smaller_one() -> None:
    assert gpus_of_fleet(5, seed=3)[:16] == gpus_of_fleet(2, seed=3)
    assert len({gpu.uuid for gpu in gpus_of_fleet(50, seed=3)}) == 400


def test_what_is_dead_says_nothing_and_comes_back() -> None:
    reports = an_hour(hosts=4, faults=100.0)
    heard = {(report.uuid, report.time_ms) for report in reports}
    every = {(report.uuid, report.time_ms) for report in an_hour(hosts=4)}
    gpus = {gpu.uuid: gpu for gpu in gpus_of_fleet(4, seed=1)}
    dead = {
        (uuid, time_ms)
        for uuid, time_ms in every
        if {FaultKind.DEAD_GPU, FaultKind.DEAD_HOST} & faults_of(1, 100.0, gpus[uuid], time_ms / 1000).keys()
    }
    assert dead
    assert heard == every - dead


def test_pods_are_named_while_jobs_run() -> None:
    pods = {json.loads(report.records[0])["pod"] for report in an_hour(hosts=10)}
    assert "" in pods
    assert any(pod.startswith(("train-", "inference-", "notebook-")) for pod in pods)


def test_reports_come_in_the_form_asked_for() -> None:
    record = json.loads(an_hour(form=RecordForm.NESTED)[0].records[0])
    assert record["gpu_id"].startswith("GPU-")
    assert record["labels"]["driver_version"]


def test_a_fraction_of_a_millisecond_does_not_change_the_average_rate() -> None:
    reports = list(islice(Fleet(FleetSettings(hosts=1, faults=NO_FAULTS, interval_ms=4.8)).reports(0), 8_000))
    assert reports[-1].time_ms == pytest.approx(4_800, abs=2)
