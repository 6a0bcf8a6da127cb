"""The whole way on a real Spark cluster: a DCGM export and bad records in; points, rollups and dead letters out."""

import json
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import duckdb
import pytest

from millstream.pipeline.stores.base import GpuQuery, RollupQuery
from millstream.pipeline.stores.rows import Level, Resolution
from millstream.testing import EmbeddedBroker
from support.pipeline import PipelineProcess, opened_store
from support.reading import read_topic
from support.store_rows import count_points
from support.telemetry import BAD_RECORDS, SENTINELS, csv_of_a_fleet, real_dcgm_csv, right_record

pytestmark = pytest.mark.xdist_group("job")

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

GPUS, METRICS = 247, 10


def dcgm_csv(directory: Path) -> Path:
    """The real export where there is one, else one of the same shape: 2,470 rows of 247 GPUs."""
    try:
        return real_dcgm_csv()
    except pytest.skip.Exception:
        made = directory / "dcgm.csv"
        made.write_text(csv_of_a_fleet(hosts=GPUS, gpus=1, scrapes=1))
        return made


def stream(csv: Path, bootstrap: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "millstream", "telemetry", "stream", str(csv), "--bootstrap", bootstrap, "--loops", "1"],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip


@pytest.mark.long
def test_a_dcgm_export_and_bad_records_on_two_workers(tmp_path: Path) -> None:
    from support.spark_cluster import StandaloneCluster

    with (
        EmbeddedBroker(topics={"telemetry": 3}) as broker,
        StandaloneCluster(tmp_path / "cluster") as cluster,
    ):
        servers = broker.bootstrap_servers
        csv = dcgm_csv(tmp_path)
        stream(csv, servers)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for record in BAD_RECORDS:
            producer.produce("telemetry", record.data, b"bad")
        for value in SENTINELS:
            producer.produce("telemetry", json.dumps(right_record(value=value)).encode(), b"sentinel")
        producer.flush()

        conf = (
            "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=512m",
            "spark.executor.cores=1",
        )  # fmt: skip
        job = PipelineProcess(
            tmp_path / "job", servers, "--once", *(word for each in conf for word in ("--conf", each)),
            master=cluster.master,
        ).start()  # fmt: skip
        try:
            assert job.wait() == 0, job.log_end()
            assert f"{GPUS * METRICS:,} points are in parquet:" in job.log_end(), job.log_end()
        finally:
            job.kill()
        assert [cluster.executors_of(worker) > 0 for worker in range(2)] == [True, True]

        status = job.status()
        assert (status["state"], status["lag"], status["dirty_minutes"], status["dirty_hours"]) == (
            "stopped",
            0,
            0,
            0,
        )
        assert status["counts"] == {
            "valid": GPUS * METRICS, "bad": len(BAD_RECORDS), "sentinel": len(SENTINELS), "late": 0, "rejected": 0,
            "lost": 0,
        }  # fmt: skip
        letters = [
            json.loads(message.value)
            for message in read_topic(servers, "telemetry.dead-letter", len(BAD_RECORDS))
        ]
        assert sorted((letter["reason"], letter["field"]) for letter in letters) == sorted(
            (record.reason, record.field) for record in BAD_RECORDS
        )

    with opened_store(f"parquet:{job.data}/store", job.data) as store:
        assert count_points(store) == GPUS * METRICS
        assert len(store.gpus(GpuQuery(limit=10_000)).rows) == GPUS
        for resolution in Resolution:
            fleet = store.rollups(RollupQuery(resolution, level=Level.FLEET, limit=10_000)).rows
            assert sum(row.count for row in fleet) == GPUS * METRICS
        file = f"read_csv('{csv}', all_varchar = true)"
        by_metric = duckdb.sql(f"SELECT metric_name, count(*) FROM {file} GROUP BY ALL").fetchall()
        assert {each.metric: each.points for each in store.metrics()} == dict(by_metric)
        by_host = duckdb.sql(f"SELECT Hostname, count(DISTINCT uuid) FROM {file} GROUP BY ALL").fetchall()
        assert {host.hostname: host.gpus for host in store.hosts()} == dict(by_host)
