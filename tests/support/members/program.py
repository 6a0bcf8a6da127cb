"""One member of a group: tells on standard output, a line of JSON each, what it is given, reads and commits.

Every line is told on the client's own thread at the moment it happens; the clock is the system's monotonic
one, so that lines of several processes can be put in order. Ends on SIGTERM by leaving the group.
"""

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Iterable
from typing import Any

_stopping = False


def tell(event: str, **fields: Any) -> None:
    os.write(1, json.dumps({"event": event, "at": time.monotonic_ns(), **fields}).encode() + b"\n")


def tell_read(offsets: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Tell runs of offsets by partition; returns the next offset of each."""
    runs: dict[int, list[int]] = {}
    for partition, offset in offsets:
        runs.setdefault(partition, []).append(offset)
    for partition, run in runs.items():
        assert run == list(range(run[0], run[-1] + 1)), f"a gap in partition {partition}: {run}"
        tell("read", partition=partition, first=run[0], last=run[-1])
    return {partition: run[-1] + 1 for partition, run in runs.items()}


def tell_committed(offsets: dict[int, int]) -> None:
    for partition, offset in offsets.items():
        tell("committed", partition=partition, offset=offset)


def confluent_config(options: argparse.Namespace) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "client.id": options.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        # A member whose node ends as it asks for its topics waits for the next refresh (test_lost_metadata.py).
        "topic.metadata.refresh.interval.ms": 5_000,
    }
    if options.kind == "KIP-848":
        config["group.protocol"] = "consumer"
    else:
        config |= {"session.timeout.ms": options.session_ms, "heartbeat.interval.ms": 300}
        cooperative = options.kind == "librdkafka-cooperative"
        config["partition.assignment.strategy"] = "cooperative-sticky" if cooperative else "roundrobin"
    if options.instance:
        config["group.instance.id"] = options.instance
    return config


def run_confluent(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(confluent_config(options))
    pending: dict[int, int] = {}

    def commit(partitions: Iterable[int]) -> None:
        offsets = {p: pending.pop(p) for p in list(partitions) if p in pending}
        if not offsets:
            return
        places = [TopicPartition(options.topic, p, offset) for p, offset in offsets.items()]
        try:
            done = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            tell("commit failed", reason=str(error))
        else:
            tell_committed({place.partition: place.offset for place in done if place.error is None})

    def assigned(_: Any, places: list[TopicPartition]) -> None:
        tell("assigned", partitions=[place.partition for place in places])

    def revoked(_: Any, places: list[TopicPartition]) -> None:
        commit(place.partition for place in places)
        tell("revoked", partitions=[place.partition for place in places])

    def lost(_: Any, places: list[TopicPartition]) -> None:
        for place in places:
            pending.pop(place.partition, None)
        tell("revoked", partitions=[place.partition for place in places], lost=True)

    consumer.subscribe([options.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not _stopping:
        wait_s = 0.1
        for _ in range(100):
            message = consumer.poll(wait_s)
            if message is None:
                break
            if message.error() is None:
                # One at a time: a callback in a later poll must find what was read before it.
                pending.update(tell_read([(message.partition(), message.offset())]))
            wait_s = 0
        commit(list(pending))
    consumer.close()


def run_kafka_python(options: argparse.Namespace) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            tell("assigned", partitions=[place.partition for place in assigned])

        def on_partitions_revoked(self, revoked: Any) -> None:
            tell("revoked", partitions=[place.partition for place in revoked])

    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=300,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        **({"group_instance_id": options.instance} if options.instance else {}),
    )
    consumer.subscribe([options.topic], listener=Listener())
    while not _stopping:
        polled = consumer.poll(100)
        following = tell_read(
            (p.partition, record.offset) for p, records in polled.items() for record in records
        )
        if following:
            try:
                consumer.commit()
            except KafkaError as error:
                tell("commit failed", reason=str(error))
            else:
                tell_committed(following)
    tell("closing")
    consumer.close()


async def run_aiokafka(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell("assigned", partitions=[place.partition for place in assigned])

        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell("revoked", partitions=[place.partition for place in revoked])

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options.session_ms,
        heartbeat_interval_ms=300,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
        group_instance_id=options.instance,
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    while not _stopping:
        polled = await consumer.getmany(timeout_ms=100)
        following = tell_read(
            (p.partition, record.offset) for p, records in polled.items() for record in records
        )
        if following:
            try:
                await consumer.commit()
            except KafkaError as error:
                tell("commit failed", reason=str(error))
            else:
                tell_committed(following)
    tell("closing")
    await consumer.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kind", "name", "bootstrap", "group", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--instance")
    parser.add_argument("--session-ms", type=int, default=6_000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    if options.kind == "kafka-python":
        run_kafka_python(options)
    elif options.kind == "aiokafka":
        asyncio.run(run_aiokafka(options))
    else:
        run_confluent(options)
    tell("closed")


def _stop(_number: int, _frame: object) -> None:
    global _stopping  # noqa: PLW0603 - the one thing a signal handler can reach
    _stopping = True


if __name__ == "__main__":
    main()
