"""The whole picture: streamers, two gateways, three brokers, collectors, InfluxDB; one of each kind is killed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from support.cluster import ClusterProcesses, cluster_of
from support.gateway import GatewayAlone
from support.influx import InfluxProcess, influxd_path
from support.influx2 import BUCKET, ORGANISATION, TOKEN, Influx2, influx2_in_front_of
from support.pipeline import PipelineProcess, opened_store
from support.store_rows import count_points
from support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="no influxd; on Debian: apt-get install influxdb"
)

REPOSITORY = Path(__file__).parents[2]
POINTS = 200
QUICK = {"HEALTH_INTERVAL_SECONDS": "1", "MILLSTREAM_PROXY_RELEASE_DELAY": "200ms"}


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[Influx2]:
    server = InfluxProcess(tmp_path / "influx").start()
    try:
        with influx2_in_front_of(server) as front:
            yield front
    finally:
        server.stop()


def told(url: str, number: int) -> tuple[list[str], dict[str, str]]:
    """How a client learns of its gateway: an option, and the variables that deployments have."""
    address = url.removeprefix("http://")
    options = (["--url", url], {}), ([], {"MSG_QUEUE_ADDR": address}), ([], {"MSG_QUEUE_URL": url})
    arguments, variables = options[number % 3]
    return list(arguments), {**os.environ, **variables}


def streamer(url: str, number: int) -> "subprocess.Popen[bytes]":
    arguments, environment = told(url, number)
    command = [sys.executable, "-m", "millstream", "telemetry", "stream", "--topic", "telemetry", *arguments]
    options = ["--seed", str(number), "--hosts", "1", "--since", "1h", "--count", str(POINTS), "--json"]
    return subprocess.Popen([*command, *options], env=environment, stdout=subprocess.PIPE)


def collector(url: str, number: int, influx: Influx2) -> "subprocess.Popen[bytes]":
    store = f"{influx.url}?org={ORGANISATION}&bucket={BUCKET}"
    arguments, environment = told(url, number)
    command = [
        sys.executable,
        str(REPOSITORY / "examples" / "http_collector.py"),
        "--influx",
        store,
        *arguments,
    ]
    return subprocess.Popen(command, env={**environment, "INFLUX_TOKEN": TOKEN}, stdout=subprocess.DEVNULL)


def stored(influx: Influx2) -> int:
    """Points in all measurements."""
    found = influx.behind.query("SELECT count(value) FROM /.*/", BUCKET)
    return sum(series["values"][0][1] for series in found)


class Picture:
    """Streamers and collectors as processes, half of each at either gateway, and kills while points flow."""

    def __init__(self, directory: Path, influx: Influx2, streamers: int, collectors: int) -> None:
        self._directory = directory
        self._influx = influx
        self._streamers = streamers
        self._collectors = collectors

    def play(self, beside: Callable[[ClusterProcesses], AbstractContextManager[object]]) -> int:
        """How many points were acknowledged; all of them are in InfluxDB, once."""
        running: list[subprocess.Popen[bytes]] = []
        influx = self._influx
        with (
            cluster_of(self._directory / "cluster", settings={"cluster.session_timeout": "2s"}) as cluster,
            GatewayAlone(self._directory / "one", cluster.seeds, QUICK) as one,
            GatewayAlone(self._directory / "two", cluster.seeds, QUICK) as two,
        ):
            cluster.start()
            cluster.create_topic("telemetry", 6)
            urls = [f"http://{gateway.address}" for gateway in (one, two)]
            for gateway in (one, two):
                gateway.wait_healthy(3)
            try:
                with beside(cluster):
                    streamers = [streamer(urls[number % 2], number) for number in range(self._streamers)]
                    collectors = [
                        collector(urls[number % 2], number, influx) for number in range(self._collectors)
                    ]
                    running += [*streamers, *collectors]
                    wait_for(lambda: stored(influx), lambda seen: seen >= 20, "the first points")
                    collectors[0].kill()
                    two.kill()
                    two.start()
                    cluster.nodes[2].kill()
                    acknowledged = [
                        json.loads(each.communicate(timeout=600)[0])["acknowledged"] for each in streamers
                    ]
                    assert acknowledged == [POINTS] * self._streamers
                    cluster.nodes[2].start()
                    total = sum(acknowledged)
                    wait_for(lambda: stored(influx), lambda seen: seen >= total, "all points", 600)
                    assert stored(influx) == total, "each once"
                return total
            finally:
                for process in running:
                    process.kill()
                    process.wait()


def test_every_point_arrives_though_one_of_each_kind_is_killed(tmp_path: Path, influx: Influx2) -> None:
    assert Picture(tmp_path, influx, 2, 3).play(lambda _: nullcontext()) == 2 * POINTS


@pytest.mark.long
@pytest.mark.xdist_group("job")
def test_the_whole_picture_with_the_spark_job_beside_it(tmp_path: Path, influx: Influx2) -> None:
    """Ten streamers and ten collectors; Spark reads the same topic as its own consumer, and has every point too."""
    pytest.importorskip("pyspark", reason="the `spark` extra is not installed")

    @contextmanager
    def spark(cluster: ClusterProcesses) -> Iterator[None]:
        job = PipelineProcess(tmp_path / "job", cluster.bootstrap).start()
        try:
            yield
            assert job.stop() == 0, job.log_end()
            rest = PipelineProcess(tmp_path / "job", cluster.bootstrap, "--once").start()
            assert rest.wait() == 0, rest.log_end()
        finally:
            job.kill()

    total = Picture(tmp_path, influx, 10, 10).play(spark)
    assert total == 10 * POINTS
    with opened_store(f"parquet:{tmp_path / 'job'}/store", tmp_path / "job") as store:
        assert count_points(store) == total
