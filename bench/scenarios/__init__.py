"""What is measured, one file a subject. A scenario starts its peers and records cells in the report."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.scenarios import (
    catch_up,
    cluster,
    commits,
    consume,
    failover,
    gateway,
    latency,
    memory,
    metadata,
    mqtt,
    produce,
    producers,
    ratio,
    rebalance,
    restart,
    start,
)
from bench.session import Session


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    summary: str
    run: Callable[[Session], None]
    needs_millstream: bool = False
    needs_memory: bool = False
    """Then it comes last, and with the memory that the others are measured without."""


# These use Millstream's Python code itself, which a run of the mock cluster alone does not need.
def _run_client(session: Session) -> None:
    from bench.scenarios import client

    client.run(session)


def _run_fixture(session: Session) -> None:
    from bench.scenarios import fixture

    fixture.run(session)


def _run_queues(session: Session) -> None:
    from bench.scenarios import queues

    queues.run(session)


def _run_queue_cluster(session: Session) -> None:
    from bench.scenarios import queue_cluster

    queue_cluster.run(session)


def _run_queue_failover(session: Session) -> None:
    from bench.scenarios import queue_failover

    queue_failover.run(session)


def _run_spark(session: Session) -> None:
    from bench.scenarios import spark

    spark.run(session)


def _run_pipeline(session: Session) -> None:
    from bench.scenarios import pipeline

    pipeline.run(session)


def _run_pipeline_latency(session: Session) -> None:
    from bench.scenarios import pipeline_latency

    pipeline_latency.run(session)


SCENARIOS = (
    Scenario(ratio.NAME, "produce on 4 partitions against the reference, round by round", ratio.run),
    Scenario(produce.NAME, "produce: 100 B, 1 KB, 10 KB; 1 and 12 partitions; acks; durability", produce.run),
    Scenario(consume.NAME, "consume: 100 B, 1 KB, 10 KB; 1 and 12 partitions", consume.run),
    Scenario(producers.NAME, "64 producers, durable against relaxed", producers.run, needs_millstream=True),
    Scenario(latency.NAME, "latency of 1,000 messages a second, linger 0", latency.run),
    Scenario(start.NAME, "process start to the first acknowledged message", start.run, needs_millstream=True),
    Scenario(memory.NAME, "resident memory when idle and after load", memory.run, needs_millstream=True),
    Scenario(restart.NAME, "restart with 1,000 and 10,000 partitions", restart.run, needs_millstream=True),
    Scenario(rebalance.NAME, "groups of 1, 10 and 100 members", rebalance.run, needs_millstream=True),
    Scenario(commits.NAME, "durable offset commits of 64 groups", commits.run, needs_millstream=True),
    Scenario(gateway.NAME, "the HTTP gateway of a node", gateway.run, needs_millstream=True),
    Scenario(mqtt.NAME, "MQTT, beside mosquitto and RabbitMQ", mqtt.run, needs_millstream=True),
    Scenario(
        "queues",
        "queues beside Apache Kafka, RabbitMQ and NATS: enqueue, deliver and acknowledge",
        _run_queues,
        needs_millstream=True,
    ),
    Scenario(
        "queue-cluster",
        "three nodes: a queue of 12 partitions is filled",
        _run_queue_cluster,
        needs_millstream=True,
    ),
    Scenario(
        "queue-failover",
        "three nodes: how long deliveries pause when a queue's leader is killed",
        _run_queue_failover,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario("client", "millstream.client against raw confluent-kafka", _run_client, needs_millstream=True),
    Scenario("fixture", "EmbeddedBroker: start to the first message", _run_fixture, needs_millstream=True),
    Scenario(
        cluster.NAME,
        "three nodes: throughput and latency, acks=1 and all, against one node",
        cluster.run,
        needs_millstream=True,
    ),
    Scenario(
        failover.NAME,
        "three nodes: how long writes pause when a leader is killed",
        failover.run,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario(
        catch_up.NAME,
        "three nodes: a follower that was away or lost its disk; moving replicas to a new node",
        catch_up.run,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario(
        metadata.NAME,
        "three nodes: creating topics, changes a second, controller failover",
        metadata.run,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario(
        "spark",
        "Spark source: rows/s to noop, Parquet, rollups",
        _run_spark,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario(
        "pipeline",
        "telemetry: rows/s to Parquet and InfluxDB",
        _run_pipeline,
        needs_millstream=True,
        needs_memory=True,
    ),
    Scenario(
        "pipeline-latency",
        "telemetry: produce to queryable at 5,000 points/s",
        _run_pipeline_latency,
        needs_millstream=True,
        needs_memory=True,
    ),
)
