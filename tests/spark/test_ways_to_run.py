"""The ways to run Spark that docs/SPARK.md names: spark-submit, Spark Connect, local clusters, standalone clusters, and
a killed executor."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

import pyspark
from confluent_kafka import Producer

from millstream.runtime.ports import ReservedPorts
from millstream.spark.java import java_home
from millstream.testing import EmbeddedBroker
from support.store_rows import count_points
from support.telemetry import right_record
from support.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("job"), pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 600
SCRIPT = """
import sys
import millstream.spark
master, servers = sys.argv[1:]
spark = millstream.spark.session(master=master, config={
    "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.cores.max": "2",
    "spark.executor.cores": "1",
})
frame = spark.read.format("millstream").option("kafka.bootstrap.servers", servers) \\
    .option("subscribe", "telemetry").option("value.format", "json") \\
    .schema("value struct<value: double>").load()
print("rows", frame.where("value.value = 42").count(), flush=True)
"""


CONNECT_CLIENT = """
import sys
from pyspark.sql import SparkSession
remote, servers = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
frame = spark.read.format("millstream").option("kafka.bootstrap.servers", servers) \\
    .option("subscribe", "telemetry").option("value.format", "json") \\
    .schema("value struct<value: double>").load()
print("rows", frame.where("value.value = 42").count(), flush=True)
spark.stop()
"""


def environment() -> dict[str, str]:
    return {
        **os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
    }  # fmt: skip


def fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        time = f"2026-03-01T12:{number // 60 % 60:02d}:{number % 60:02d}Z"
        producer.produce("telemetry", json.dumps(right_record(timestamp=time)).encode(), b"%d" % number)
    assert producer.flush(30) == 0


def run(*command: str) -> str:
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_spark_submit_runs_the_notebooks_example(tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    with EmbeddedBroker(topics={"telemetry": 2}) as broker:
        fill(broker.bootstrap_servers)
        picture = tmp_path / "mean.png"
        example = str(ROOT / "examples" / "spark_windowed_mean.py")
        said = run(
            submit, "--master", "local[2]", example, broker.bootstrap_servers, "telemetry", str(picture)
        )
    assert "10 minutes of 1 metrics" in said
    assert picture.stat().st_size > 1000


def test_spark_connect_reads_by_its_server(tmp_path: Path) -> None:
    """The client is a process of its own, which knows nothing of Millstream."""
    client = tmp_path / "client.py"
    client.write_text(CONNECT_CLIENT)
    reserved = ReservedPorts(1)
    [port] = reserved.ports
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    server_class = "org.apache.spark.sql.connect.service.SparkConnectServer"
    conf = (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
    )
    with EmbeddedBroker(topics={"telemetry": 2}) as broker, (tmp_path / "server.log").open("wb") as log:
        fill(broker.bootstrap_servers)
        server = subprocess.Popen(
            [submit, "--master", "local[2]", "--class", server_class,
             *(word for each in conf for word in ("--conf", each)), "spark-internal"],
            env=environment(), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            wait_for(lambda: answers(port), bool, "the server of Spark Connect", 180)
            said = run(sys.executable, str(client), f"sc://127.0.0.1:{port}", broker.bootstrap_servers)
        finally:
            server.terminate()
            server.wait(60)
            reserved.close()
    assert f"rows {RECORDS}" in said


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def test_executors_of_a_local_and_of_a_standalone_cluster_read(tmp_path: Path) -> None:
    from support.spark_cluster import StandaloneCluster

    script = tmp_path / "count.py"
    script.write_text(SCRIPT)
    with (
        EmbeddedBroker(topics={"telemetry": 3}) as broker,
        StandaloneCluster(tmp_path / "cluster") as cluster,
    ):
        fill(broker.bootstrap_servers)
        for master in ("local-cluster[2,1,1024]", cluster.master):
            assert f"rows {RECORDS}" in run(sys.executable, str(script), master, broker.bootstrap_servers)
        assert all(cluster.executors_of(worker) for worker in range(2))


def test_a_killed_executor_loses_and_repeats_nothing(tmp_path: Path) -> None:
    from support.pipeline import PipelineProcess, opened_store
    from support.spark_cluster import StandaloneCluster
    from support.telemetry_load import Load

    with (
        EmbeddedBroker(topics={"telemetry": 3}) as broker,
        StandaloneCluster(tmp_path / "cluster") as cluster,
    ):
        conf = ("spark.driver.host=127.0.0.1", "spark.executor.memory=512m", "spark.executor.cores=1")
        job = PipelineProcess(
            tmp_path / "job", broker.bootstrap_servers, "--trigger", "500ms",
            *(word for each in conf for word in ("--conf", each)), master=cluster.master,
        ).start()  # fmt: skip
        try:
            with Load(broker.bootstrap_servers, "telemetry") as load:
                job.wait_until(lambda status: status.get("batch_id", -1) >= 0, "the first points")
                victims = executors(tmp_path / "cluster")
                os.kill(victims[0], signal.SIGKILL)
                wait_for(
                    lambda: set(executors(tmp_path / "cluster")) - set(victims), bool, "another executor", 120
                )
                load.wait_for_more(load.per_second)
                load.finish()
            job.wait_until(lambda status: status["counts"]["valid"] >= load.records, "all records")
            assert job.stop(signal.SIGINT) == 0, job.log_end()
        finally:
            job.kill()
        with opened_store(f"parquet:{job.data}/store", job.data) as store:
            assert count_points(store) == len(load.acknowledged)


def executors(directory: Path) -> list[int]:
    """Processes of executors that work in the cluster's directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                place = os.readlink(entry / "cwd")
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in command and place.startswith(str(directory)):
                found.append(int(entry.name))
    return sorted(found)
