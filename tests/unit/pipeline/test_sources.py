import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millstream.pipeline.fleet import EVERYTHING, Fleet, FleetSettings, Share
from millstream.pipeline.record import RecordForm, TelemetryRecord, format_time
from millstream.pipeline.sources import (
    Burst,
    CsvError,
    CsvSource,
    Timestamps,
    check_header,
    fleet_bursts,
    read_dcgm_csv,
)
from millstream.testing.clock import ManualClock
from support.telemetry import COLUMNS, csv_of_a_fleet, real_dcgm_csv

NOW_MS = 1_800_000_000_000
ROWS_PER_PASS = 2 * 2 * 10 * 2


@pytest.fixture
def source(tmp_path: Path):
    path = tmp_path / "dcgm.csv"
    path.write_text(csv_of_a_fleet(hosts=2, gpus=2, scrapes=2))

    def make(
        loops: int | None = 1, timestamps: Timestamps = Timestamps.ORIGINAL, share: Share = EVERYTHING
    ) -> CsvSource:
        return CsvSource(
            path, "t", RecordForm.FLAT, share, timestamps, loops, on_bad_row=print, clock=ManualClock(NOW_MS)
        )

    return make


def documents(bursts: list[Burst]) -> list[dict[str, Any]]:
    return [json.loads(record.value) for burst in bursts for record in burst.records]


def identities(bursts: list[Burst]) -> set[tuple[str, str, str]]:
    return {(each["uuid"], each["metric_name"], each["timestamp"]) for each in documents(bursts)}


def test_one_pass_keeps_the_rows_as_they_are(source) -> None:
    bursts = list(source().at_rate(None))
    sent = documents(bursts)
    assert len(sent) == ROWS_PER_PASS
    assert {each["timestamp"] for each in sent} == {"2025-07-18T20:42:34Z", "2025-07-18T20:42:35Z"}
    assert all(
        record.key == each["uuid"]
        for burst in bursts
        for record, each in zip(burst.records, documents([burst]), strict=True)
    )


def test_points_are_due_at_the_rate(source) -> None:
    bursts = list(source().at_rate(10))
    assert [len(burst.records) for burst in bursts] == [1] * ROWS_PER_PASS
    assert [burst.due_s for burst in bursts] == [number / 10 for number in range(ROWS_PER_PASS)]
    fast = list(source().at_rate(1_000))
    assert {len(burst.records) for burst in fast} == {20}
    assert fast[-1].due_s == pytest.approx((ROWS_PER_PASS - 20) / 1_000)


def test_moved_points_have_the_time_at_which_they_are_due(source) -> None:
    bursts = list(source(timestamps=Timestamps.NOW).at_rate(10))
    assert documents(bursts)[15]["timestamp"] == format_time(NOW_MS + 1_500)


def test_no_two_points_of_endless_passes_are_the_same_point(source) -> None:
    # The clock stands still, as it does for passes that take less than a millisecond.
    bursts = list(islice(source(loops=None, timestamps=Timestamps.NOW).at_rate(None), 5))
    assert len(documents(bursts)) == 5 * ROWS_PER_PASS
    assert len(identities(bursts)) == 5 * ROWS_PER_PASS


def test_passes_with_the_original_times_repeat_the_points(source) -> None:
    bursts = list(source(loops=3).at_rate(None))
    assert len(documents(bursts)) == 3 * ROWS_PER_PASS
    assert len(identities(bursts)) == ROWS_PER_PASS


def test_a_replay_keeps_the_pauses(source) -> None:
    bursts = list(source().as_it_was(1.0))
    assert {burst.due_s for burst in bursts} == {0.0, 1.0}
    assert {burst.due_s for burst in source().as_it_was(4.0)} == {0.0, 0.25}


def test_a_replay_can_be_moved_to_the_present_and_repeated(source) -> None:
    bursts = list(source(loops=2, timestamps=Timestamps.NOW).as_it_was(1.0))
    assert sorted({each["timestamp"] for each in documents(bursts)}) == [
        format_time(NOW_MS + seconds * 1000) for seconds in range(4)
    ]
    assert len(identities(bursts)) == 2 * ROWS_PER_PASS


def test_instances_share_the_rows_of_a_file(source) -> None:
    parts = [identities(list(source(share=Share(number, 2)).at_rate(None))) for number in (1, 2)]
    assert parts[0].isdisjoint(parts[1])
    assert parts[0] | parts[1] == identities(list(source().at_rate(None)))


def test_an_instance_without_a_gpu_is_told_so(source) -> None:
    uuids = {each["uuid"] for each in documents(list(source().at_rate(None)))}
    without = next(share for n in range(1, 101) if not any(map((share := Share(n, 100)).holds, uuids)))
    with pytest.raises(CsvError, match=f"none of its GPUs belongs to instance {without.number}/100"):
        list(source(share=without).at_rate(None))


def test_a_file_without_a_usable_row_is_told_of_rather_than_read_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    source = CsvSource(path, "t", RecordForm.FLAT, Share(), Timestamps.NOW, None, print)
    with pytest.raises(CsvError, match="no row of it can be used"):
        next(source.at_rate(None))


def test_a_fleets_past_is_due_at_once_and_its_future_in_time() -> None:
    fleet = Fleet(FleetSettings(hosts=1, interval_ms=8_000))
    bursts = list(islice(fleet_bursts(fleet, "t", NOW_MS - 8_000, clock=ManualClock(NOW_MS)), 16))
    assert {burst.due_s for burst in bursts[:8]} == {0.0}
    assert [burst.due_s for burst in bursts[8:]] == list(range(8))


def test_a_fleets_past_can_be_paced() -> None:
    fleet = Fleet(FleetSettings(hosts=1, interval_ms=8_000))
    bursts = list(fleet_bursts(fleet, "t", NOW_MS - 16_000, NOW_MS, rate=150, clock=ManualClock(NOW_MS)))
    assert [burst.due_s for burst in bursts] == pytest.approx([number / 10 for number in range(16)])


@pytest.fixture
def write(tmp_path: Path):
    def write_file(text: str) -> Path:
        path = tmp_path / "dcgm.csv"
        path.write_text(text)
        return path

    return write_file


def read(path: Path) -> tuple[list[TelemetryRecord], list[str]]:
    bad: list[str] = []
    return list(read_dcgm_csv(path, bad.append)), bad


def test_every_row_is_a_record(write) -> None:
    records, bad = read(write(csv_of_a_fleet(hosts=2, gpus=3, scrapes=2)))
    assert len(records) == 2 * 3 * 2 * 10
    assert bad == []
    assert records[0] == TelemetryRecord(
        time_ms=1752871354000,
        metric_name="DCGM_FI_DEV_GPU_UTIL",
        uuid="GPU-00000000-0000-4000-8000-000000000000",
        value=0.0,
        gpu_id="0",
        device="nvidia0",
        model_name="NVIDIA H100 80GB HBM3",
        hostname="host-000",
        labels_raw='DCGM_FI_DRIVER_VERSION="535.129.03",Hostname="host-000",UUID="GPU-00000000-0000-4000-8000-000000000000"',
    )


def test_the_host_column_of_newer_exporters_is_understood(write) -> None:
    records, _ = read(write(csv_of_a_fleet(hostname_column="hostname")))
    assert records[0].hostname == "host-000"


def test_columns_in_another_order_and_without_kubernetes_are_understood(write) -> None:
    records, bad = read(
        write(
            "value,uuid,Hostname,modelName,device,gpu_id,metric_name,timestamp,more\n"
            "7,GPU-1,h,m,nvidia0,0,DCGM_FI_DEV_GPU_UTIL,2025-07-18T20:42:34Z,x\n"
        )
    )
    assert bad == []
    assert (records[0].value, records[0].uuid, records[0].hostname, records[0].pod) == (7.0, "GPU-1", "h", "")


@pytest.mark.parametrize("text", ["", "\n", "timestamp,value\n1,2\n", "PK\x03\x04\n"])
def test_missing_columns_are_named(write, text: str) -> None:
    path = write(text)
    with pytest.raises(CsvError, match=r"no column .*metric_name.*uuid") as error:
        read(path)
    assert str(path) in str(error.value)
    with pytest.raises(CsvError):
        check_header(path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2025-07-18T20:42:34Z,M,0,d,GPU-1,m,h,hot", "value 'hot' is not a number"),
        ("2025-07-18T20:42:34Z,M,0,d,GPU-1,m,h,", "value '' is not a number"),
        ("2025-07-18T20:42:34Z,M,0,d,GPU-1,m,h,nan", "value 'nan' is not a number"),
        ("yesterday,M,0,d,GPU-1,m,h,1", "timestamp 'yesterday' is not"),
        ("2025-07-18T20:42:34Z,M,0,d,,m,h,1", "no uuid"),
        ("2025-07-18T20:42:34Z,,0,d,GPU-1,m,h,1", "no metric_name"),
        ("2025-07-18T20:42:34Z,M", "2 columns where the header has 8"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_left_out(write, row: str, reason: str) -> None:
    good = "2025-07-18T20:42:34Z,M,0,d,GPU-1,m,h,1\n"
    path = write(f"timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,value\n{good}{row}\n{good}")
    records, bad = read(path)
    assert len(records) == 2
    assert len(bad) == 1
    assert bad[0].startswith(f"{path}:3: {reason}")


def test_the_real_export_has_ten_metrics_of_247_gpus() -> None:
    records, bad = read(real_dcgm_csv())
    assert bad == []
    assert len(records) == 2470
    assert len({record.uuid for record in records}) == 247
    assert len({record.hostname for record in records}) == 31
    assert set(Counter(record.metric_name for record in records).values()) == {247}
