"""The figures we want to reach, and whether a run reached them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from statistics import median

from bench.model import LoadCell, Peer, Report
from bench.ratio import throughput_ratio
from bench.scenarios import cluster_names, names, pipeline_names, spark_names
from bench.scenarios.spark_names import Source, Work


class Verdict(Enum):
    HOLDS = "yes"
    MISSED = "no"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Judged:
    figure: str
    goal: str
    measured: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Measured:
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class _Goal:
    figure: str
    limit: float
    at_least: bool
    unit: str
    measure: Callable[[Report], _Measured | None]

    def judge(self, report: Report) -> Judged:
        goal = f"{'at least' if self.at_least else 'at most'} {self.limit:g} {self.unit}".strip()
        measured = self.measure(report)
        if measured is None:
            return Judged(self.figure, goal, "-", Verdict.NOT_MEASURED)
        holds = measured.value >= self.limit if self.at_least else measured.value <= self.limit
        return Judged(self.figure, goal, measured.text, Verdict.HOLDS if holds else Verdict.MISSED)


def judge(report: Report) -> list[Judged]:
    return [goal.judge(report) for goal in _goals()]


def _goals() -> Iterator[_Goal]:
    for size, limit in ((100, 0.95), (1_000, 0.85)):
        for copied in (False, True):
            how = "copied by the client" if copied else "not copied"
            what = f"produce {names.size_name(size)}, 4 partitions, relaxed, {how}"
            figure = f"{what}: throughput against the mock cluster"
            yield _Goal(figure, limit, True, "", _reference_ratio(names.ratio_name(size, copied=copied)))
    produced = names.ratio_name(1_000, copied=False)
    yield _Goal("broker CPU for 1 GB produced in 1 KB messages", 2.0, False, "s", _cpu_per_gb(produced))
    consumed = [names.consume_name(1_000, partitions) for partitions in (1, 12)]
    yield _Goal("broker CPU for 1 GB consumed in 1 KB messages", 0.9, False, "s", _cpu_per_gb(*consumed))
    for size in (100, 1_000):
        figure = f"64 producers, {names.size_name(size)}: durable against relaxed throughput"
        yield _Goal(figure, 0.7, True, "", _durable_ratio(size))
    for figure, limit in ((names.QUEUE_IN_BATCHES, 100_000), (names.QUEUE_ONE_BY_ONE, 20_000)):
        yield _Goal(figure, limit, True, "messages/s", _figure(figure))
    yield _Goal("start to first acknowledged message", 0.8, False, "s", _figure(names.START_TO_FIRST_ACK))
    idle = (names.IDLE_MEMORY_AT_START, names.IDLE_MEMORY_LATER)
    yield _Goal("idle resident memory", 80, False, "MB", _figure(*idle))
    relaxed = names.latency_name("relaxed")
    yield _Goal("latency at 1,000 msg/s, acks=1, relaxed, p50", 1, False, "ms", _latency(relaxed, "p50"))
    yield _Goal("latency at 1,000 msg/s, acks=1, relaxed, p99", 5, False, "ms", _latency(relaxed, "p99"))
    for what in (names.CLIENT_SEND_BATCH, names.CLIENT_POLL):
        figure = f"{what}, millstream.client: time over confluent-kafka"
        yield _Goal(figure, 10, False, "%", _figure(names.client_overhead(what)))
    yield _Goal("fixture start to first message", 1, False, "s", _figure(names.FIXTURE_TO_FIRST_MESSAGE))
    restart = names.restart_to_first_ack(10_000)
    yield _Goal(
        "restart with 10,000 partitions to first acknowledged message", 5, False, "s", _figure(restart)
    )
    joined = names.rebalance_join("consumer", 100)
    yield _Goal("100 members of a KIP-848 group, join to whole assignment", 2, False, "s", _figure(joined))
    commits = names.COMMITS_PER_SECOND
    yield _Goal("durable offset commits, 64 groups", 2_000, True, "/s", _figure(commits))
    yield from _gateway_goals()
    yield from _mqtt_goals()
    yield from _cluster_goals()
    noop = spark_names.spark_name(Source.MILLSTREAM, Work.NOOP)
    yield _Goal("Spark, topic to noop, 1M records of 310 B, local[2]", 350_000, True, "rows/s", _figure(noop))
    connector = spark_names.spark_ratio(Work.NOOP, Source.CONNECTOR)
    yield _Goal("Spark, topic to noop: against Spark's connector", 1.5, True, "", _figure(connector))
    typed = spark_names.spark_ratio(Work.TYPED, Source.CONNECTOR)
    yield _Goal(
        "Spark, JSON as typed columns: against Spark's connector with from_json",
        2.5,
        True,
        "",
        _figure(typed),
    )
    text = spark_names.spark_ratio(Work.ROLLUPS, Source.TEXT)
    yield _Goal("Spark, JSON and 1-minute rollups: against text files", 0.85, True, "", _figure(text))
    to_parquet, to_influx = _figure(pipeline_names.PARQUET_RATIO), _figure(pipeline_names.INFLUX_RATIO)
    yield _Goal("pipeline, topic to Parquet with rollups: against text files", 1.0, True, "", to_parquet)
    rate = _figure(pipeline_names.PARQUET)
    yield _Goal("pipeline, topic to Parquet with rollups, 1M records", 120_000, True, "rows/s", rate)
    yield _Goal("pipeline, topic to InfluxDB: against one process that only posts", 0.8, True, "", to_influx)
    for percentile, limit in (("p50", 1.2), ("p99", 3.0)):
        name = pipeline_names.latency_name(percentile)
        yield _Goal(name, limit, False, "s", _figure(name))


def _mqtt_goals() -> Iterator[_Goal]:
    relaxed, durable = "in the log, flushed every second", "in the log, fsynced"

    def ours(what: str, durability: str = relaxed) -> str:
        return names.mqtt_name(what, "millstream", durability)

    publish = "QoS 1, 10 publishers with 100 in flight"
    for name, limit in (
        (ours(publish), 60_000),
        (ours(publish, durable), 30_000),
        (ours("QoS 0, 1 publisher to 10 subscribers"), 200_000),
        (ours("QoS 0, 1 publisher to 1,000 subscribers"), 200_000),
        (names.MQTT_QUEUE_IN, 100_000),
        (names.MQTT_QUEUE_OUT, 50_000),
    ):
        yield _Goal(name, limit, True, "/s", _figure(name))
    for percentile, most_ms in (("p50", 1), ("p99", 10)):
        name = ours(f"QoS 1 end to end at 1,000/s, {percentile}")
        yield _Goal(name, most_ms, False, "ms", _figure(name))
    idle = ours("memory of the broker with 10,000 idle sessions", "each with a subscription")
    yield _Goal(idle, 400, False, "MB", _figure(idle))


def _gateway_goals() -> Iterator[_Goal]:
    yield _Goal(
        "gateway: single-message POSTs, 64 connections", 6_000, True, "/s", _figure(names.GATEWAY_POSTS)
    )
    yield _Goal("gateway: messages in batches", 150_000, True, "msg/s", _figure(names.GATEWAY_BATCHED))
    for percentile, limit in (("p50", 1), ("p99", 5)):
        name = names.gateway_added("a node's gateway", percentile)
        yield _Goal(name, limit, False, "ms", _figure(name))
    streams = names.gateway_streams(10_000)
    yield _Goal("gateway: memory of 10,000 idle streams", 500, False, "MB", _figure(streams))


def _cluster_goals() -> Iterator[_Goal]:
    for size in cluster_names.THROUGHPUT_SIZES:
        yield _Goal(
            f"three nodes, {names.size_name(size)}, RF 3, acks=all, relaxed: throughput over one node with acks=1",
            0.45,
            True,
            "",
            _cluster_ratio(size),
        )
    for percentile, limit in (("p50", 0.7), ("p99", 1.5)):
        name = cluster_names.failover_name(percentile)
        yield _Goal(f"leader killed 30 times: {name.partition(': ')[2]}", limit, False, "s", _figure(name))
    lost = _figure(cluster_names.FAILOVER_LOST, cluster_names.FAILOVER_TWICE)
    yield _Goal("leader killed 30 times: acknowledged messages lost, or stored twice", 0, False, "", lost)
    away, empty = cluster_names.CATCH_UP_AWAY, cluster_names.CATCH_UP_EMPTY
    yield _Goal("follower catch-up", 200, True, "MB/s", _figure(away, empty, at_least=True))
    for acks, limit in (("1", 300_000), ("all", 250_000)):
        name = cluster_names.queue_filled_name(acks)
        yield _Goal(name, limit, True, "/s", _figure(name))
    created = _figure(cluster_names.create_name(1_000))
    yield _Goal("create 1,000 topics of 12 partitions, RF 3", 15, False, "s", created)


def _cluster_ratio(size: int) -> Callable[[Report], _Measured | None]:
    three = cluster_names.cluster_name(cluster_names.THREE_NODES, size, "all", "relaxed")
    one = cluster_names.cluster_name(cluster_names.ONE_NODE, size, "1", "relaxed")
    return lambda report: _ratio(report.load(three), report.load(one))


def _ratio(ours: LoadCell | None, reference: LoadCell | None) -> _Measured | None:
    if ours is None or reference is None:
        return None
    ratio = throughput_ratio(ours, reference)
    return _Measured(ratio.median, str(ratio))


def _reference_ratio(name: str) -> Callable[[Report], _Measured | None]:
    return lambda report: _ratio(report.load(name), report.load(name, Peer.MOCK))


def _durable_ratio(size: int) -> Callable[[Report], _Measured | None]:
    durable, relaxed = names.producers_name(size, "durable"), names.producers_name(size, "relaxed")
    return lambda report: _ratio(report.load(durable), report.load(relaxed))


def _cpu_per_gb(*cells: str) -> Callable[[Report], _Measured | None]:
    """The worst of the cells' medians."""

    def measure(report: Report) -> _Measured | None:
        found = [cell for cell in map(report.load, cells) if cell is not None]
        if not found:
            return None
        worst = max(median(sample.cpu_seconds_per_gb for sample in cell.samples) for cell in found)
        return _Measured(worst, f"{worst:.2f} s")

    return measure


def _figure(*cells: str, at_least: bool = False) -> Callable[[Report], _Measured | None]:
    """The worst of the figures' medians."""

    def measure(report: Report) -> _Measured | None:
        found = [cell for cell in map(report.figure, cells) if cell is not None]
        if not found:
            return None
        worst = (min if at_least else max)(found, key=lambda cell: cell.median)
        return _Measured(worst.median, f"{worst.median:.2f} {worst.unit}")

    return measure


def _latency(name: str, percentile: str) -> Callable[[Report], _Measured | None]:
    def measure(report: Report) -> _Measured | None:
        cell = report.load(name)
        if cell is None:
            return None
        latencies = [sample.load.latency_ms for sample in cell.samples]
        value = median(float(getattr(latency, percentile)) for latency in latencies if latency is not None)
        return _Measured(value, f"{value:.2f} ms")

    return measure
