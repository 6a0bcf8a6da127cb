"""The whole picture: streamers, two gateways, three brokers, collectors, InfluxDB; one of each kind is killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster import cluster_of
from support.gateway import GatewayAlone
from support.influx import InfluxProcess, influxd_path
from support.influx2 import BUCKET, ORGANISATION, TOKEN, Influx2, influx2_in_front_of
from support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    influxd_path() is None, reason="no influxd; on Debian: apt-get install influxdb"
)

REPOSITORY = Path(__file__).parents[2]
STREAMERS, COLLECTORS, POINTS = 2, 3, 200
QUICK = {"HEALTH_INTERVAL_SECONDS": "1", "MILLSTREAM_PROXY_RELEASE_DELAY": "200ms"}


@pytest.fixture
def influx(tmp_path: Path) -> Iterator[Influx2]:
    server = InfluxProcess(tmp_path / "influx").start()
    try:
        with influx2_in_front_of(server) as front:
            yield front
    finally:
        server.stop()


def streamer(url: str, number: int) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable,
        "-m",
        "millstream",
        "telemetry",
        "stream",
        "--url",
        url,
        "--topic",
        "telemetry",
    ]
    options = ["--seed", str(number), "--hosts", "1", "--since", "1h", "--count", str(POINTS), "--json"]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE)


def collector(url: str, influx: Influx2) -> "subprocess.Popen[bytes]":
    store = f"{influx.url}?org={ORGANISATION}&bucket={BUCKET}"
    command = [
        sys.executable,
        str(REPOSITORY / "examples" / "http_collector.py"),
        "--url",
        url,
        "--influx",
        store,
    ]
    return subprocess.Popen(command, env={**os.environ, "INFLUX_TOKEN": TOKEN}, stdout=subprocess.DEVNULL)


def stored(influx: Influx2) -> int:
    """Points in all measurements."""
    found = influx.behind.query("SELECT count(value) FROM /.*/", BUCKET)
    return sum(series["values"][0][1] for series in found)


def test_every_point_arrives_though_one_of_each_kind_is_killed(tmp_path: Path, influx: Influx2) -> None:
    running: list[subprocess.Popen[bytes]] = []
    with (
        cluster_of(tmp_path / "cluster", settings={"cluster.session_timeout": "2s"}) as cluster,
        GatewayAlone(tmp_path / "one", cluster.seeds, QUICK) as one,
        GatewayAlone(tmp_path / "two", cluster.seeds, QUICK) as two,
    ):
        cluster.start()
        cluster.create_topic("telemetry", 6)
        urls = [f"http://{gateway.address}" for gateway in (one, two)]
        for gateway in (one, two):
            gateway.wait_healthy(3)
        try:
            streamers = [streamer(urls[number % 2], number) for number in range(STREAMERS)]
            collectors = [collector(urls[number % 2], influx) for number in range(COLLECTORS)]
            running += [*streamers, *collectors]
            wait_for(lambda: stored(influx), lambda seen: seen >= 20, "the first points")
            collectors[0].kill()
            two.kill()
            two.start()
            cluster.nodes[2].kill()
            acknowledged = [
                json.loads(each.communicate(timeout=240)[0])["acknowledged"] for each in streamers
            ]
            assert acknowledged == [POINTS] * STREAMERS
            cluster.nodes[2].start()
            wait_for(lambda: stored(influx), lambda seen: seen >= sum(acknowledged), "all points", 300)
            assert stored(influx) == sum(acknowledged), "each once"
        finally:
            for process in running:
                process.kill()
                process.wait()
