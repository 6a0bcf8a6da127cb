"""Restart after a clean stop with many partitions, each of which holds messages."""

import time
from pathlib import Path

from bench.loads import ProduceLoad
from bench.peers import Durability
from bench.peers.millstream import READY_TIMEOUT_SECONDS, Millstream
from bench.rawclient import wait_for_first_ack
from bench.scenarios.names import restart_stop, restart_to_first_ack, restart_to_ready
from bench.session import Session
from millstream.runtime.ports import ReservedPorts

NAME = "restart"
_TOPIC_PARTITIONS = 500
_MESSAGE_BYTES = 100
# The driver gives each partition 200 messages before it moves on, so this reaches every one of them.
_TOPIC_BYTES = _TOPIC_PARTITIONS * 200 * _MESSAGE_BYTES
_FILL_SECONDS = 120.0


def run(session: Session) -> None:
    for partitions in (1_000,) if session.plan.quick else (1_000, 10_000):
        with session.data_directory() as directory, ReservedPorts() as reserved:
            (port,) = reserved.ports
            stop_seconds = [_fill(session, directory, partitions)]
            ready, acknowledged = [], []
            rounds = session.plan.rounds_of(full=3, quick=1)
            for number in range(rounds):
                session.display.step(f"{partitions:,} partitions, restart {number + 1} of {rounds}")
                broker = Millstream(directory, port)
                try:
                    at = wait_for_first_ack(port, "restart-0", READY_TIMEOUT_SECONDS, broker.check_alive)
                    acknowledged.append(at - broker.spawned_at)
                    ready.append(broker.wait_ready())
                finally:
                    stop_seconds.append(_timed_stop(broker))
        session.record_figure(NAME, restart_to_ready(partitions), "s", ready)
        session.record_figure(NAME, restart_to_first_ack(partitions), "s", acknowledged)
        session.record_figure(NAME, restart_stop(partitions), "s", stop_seconds)


def _fill(session: Session, directory: Path, partitions: int) -> float:
    """Creates the topics and writes to every partition; returns how long the clean stop took."""
    broker = Millstream(directory)
    try:
        broker.wait_ready()
        load = ProduceLoad(_TOPIC_PARTITIONS, _MESSAGE_BYTES, _FILL_SECONDS, max_bytes=_TOPIC_BYTES)
        for number in range(partitions // _TOPIC_PARTITIONS):
            session.display.step(f"{partitions:,} partitions: filling topic {number + 1}")
            topic = f"restart-{number}"
            broker.create_topic(topic, _TOPIC_PARTITIONS, Durability.RELAXED)
            session.run_load(broker, load, topic)
    except BaseException:
        broker.stop()
        raise
    session.display.step(f"{partitions:,} partitions: clean stop")
    return _timed_stop(broker)


def _timed_stop(broker: Millstream) -> float:
    start = time.perf_counter()
    broker.stop()
    return time.perf_counter() - start
