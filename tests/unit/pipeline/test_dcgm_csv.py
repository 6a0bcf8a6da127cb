from collections import Counter
from pathlib import Path

import pytest

from millstream.pipeline.record import TelemetryRecord
from millstream.pipeline.sources import CsvError, check_header, read_dcgm_csv
from support.telemetry import csv_of_a_fleet, real_dcgm_csv


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
