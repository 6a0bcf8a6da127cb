"""The benchmark harness accounts for every message; nothing here looks at a time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.driver.native import DriverUnavailableError, build
from bench.driver.run import Driver, DriverError
from bench.loads import ConsumeLoad, ProduceLoad
from bench.peers import Durability
from bench.peers.mock import MockCluster
from bench.rawclient import wait_for_first_ack

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    try:
        binary = build(tmp_path_factory.mktemp("driver"))
    except DriverUnavailableError as reason:
        pytest.skip(str(reason))
    return Driver((str(binary),), "native", native=True)


@pytest.fixture
def cluster(driver: Driver) -> Iterator[MockCluster]:
    peer = MockCluster(driver.command)
    yield peer
    peer.stop()


def test_driver_counts_what_the_broker_stored(driver: Driver, cluster: MockCluster) -> None:
    cluster.create_topic("counted", 3, Durability.RELAXED)
    load = ProduceLoad(partitions=3, size=100, seconds=30, producers=2, max_bytes=100 * 5_001)

    result = driver.run(load, cluster.bootstrap, "counted")

    assert (result.messages, result.stored, result.errors) == (5_001, 5_001, 0)


def test_driver_consumes_every_message_in_every_pass(driver: Driver, cluster: MockCluster) -> None:
    cluster.create_topic("read", 3, Durability.RELAXED)
    driver.run(ProduceLoad(3, 100, seconds=30, max_bytes=100 * 1_000), cluster.bootstrap, "read")

    result = driver.run(ConsumeLoad(3, passes=2), cluster.bootstrap, "read")

    assert (result.messages, result.bytes, result.errors) == (2_000, 200_000, 0)


def test_driver_reports_latencies_at_a_fixed_rate(driver: Driver, cluster: MockCluster) -> None:
    cluster.create_topic("timed", 1, Durability.RELAXED)
    load = ProduceLoad(1, 100, seconds=0.2, acks="1", linger_ms=0, rate=500)

    result = driver.run(load, cluster.bootstrap, "timed")

    assert result.messages == 100
    assert result.latency_ms is not None
    assert 0 < result.latency_ms.p50 <= result.latency_ms.p99 <= result.latency_ms.max


def test_driver_refuses_a_topic_with_another_number_of_partitions(
    driver: Driver, cluster: MockCluster
) -> None:
    cluster.create_topic("narrow", 2, Durability.RELAXED)

    with pytest.raises(DriverError, match="another number of partitions"):
        driver.run(ProduceLoad(3, 100, seconds=1), cluster.bootstrap, "narrow")


def test_raw_client_gets_its_first_message_acknowledged(driver: Driver, cluster: MockCluster) -> None:
    port = int(cluster.bootstrap.rpartition(":")[2])

    wait_for_first_ack(port, "first", timeout_seconds=90, check=lambda: None)

    result = driver.run(ConsumeLoad(4), cluster.bootstrap, "first")
    assert (result.messages, result.bytes) == (1, len(b"first"))


@pytest.mark.usefixtures("driver")
def test_harness_writes_a_report_that_renders(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run = ["ratio", "--quick", "--rounds", "1", "--seconds", "0.5", "--peer", "mock", "--data", str(tmp_path)]

    _bench(*run, "--json", str(report))
    page = _bench("--markdown", "--report", str(report))

    loads = json.loads(report.read_bytes())["loads"]
    assert loads
    assert all(
        sample["load"]["stored"] == sample["load"]["messages"] for cell in loads for sample in cell["samples"]
    )
    assert "| produce 100 B, 4 partitions" in page
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def _bench(*arguments: str) -> str:
    command = [sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
