"""MQTT: publish rates, fan-out, fan-in, retained messages, connections, memory, queues; mosquitto and RabbitMQ beside.

What each side has done when it acknowledges is part of a figure's name. Rounds of the brokers take turns.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from bench import mqttload
from bench.machine import Usage
from bench.mqttload import Address, LoadError
from bench.peers import Durability, PeerError
from bench.peers.millstream import Millstream
from bench.peers.mqtt_brokers import Mosquitto, RabbitMq, free_port
from bench.scenarios.names import MQTT_QUEUE_IN, MQTT_QUEUE_OUT, mqtt_name
from bench.session import Session

NAME = "mqtt"
_RELAXED, _DURABLE = "in the log, flushed every second", "in the log, fsynced"


class _Broker(Protocol):
    name: str
    durability: str
    address: Address

    def usage(self) -> Usage: ...


class _Ours:
    """A node whose topic for messages is relaxed, or as durable as it is by default."""

    name = "millstream"

    def __init__(self, node: Millstream, address: Address, durability: str) -> None:
        self.node = node
        self.address = address
        self.durability = durability
        self.usage = node.usage


def run(session: Session) -> None:
    seconds = 1.0 if session.plan.quick else 3.0
    rounds = session.plan.rounds_of(full=2, quick=1)
    with contextlib.ExitStack() as stack:
        relaxed = stack.enter_context(_ours(session, Durability.RELAXED))
        durable = stack.enter_context(_ours(session, Durability.DURABLE))
        brokers: list[_Broker] = [relaxed, durable]
        for kind in (Mosquitto, RabbitMq):
            if not kind.is_available():
                session.skip(NAME, kind.name, f"not installed: apt-get install {kind.package}")
                continue
            peer = kind(stack.enter_context(session.data_directory()))
            stack.callback(peer.stop)
            brokers.append(peer)
        _latency(session, brokers, rounds, seconds)
        _compare(session, brokers, rounds, seconds)
        _queue(session, relaxed, rounds, seconds)
        _idle(session, brokers, 200 if session.plan.quick else 10_000)


@contextlib.contextmanager
def _ours(session: Session, durability: Durability) -> Iterator[_Ours]:
    port = free_port()
    with session.millstream(settings={"mqtt.listen": f"127.0.0.1:{port}"}) as node:
        node.configure_topic("mqtt", durability)
        told = _RELAXED if durability is Durability.RELAXED else _DURABLE
        yield _Ours(node, ("127.0.0.1", port), told)


# A quick run goes without: brokers take longer to let a thousand clients in than to be measured.
_THOUSANDS = "1,000 subscribers", "1,000 publishers"
_LOADS: tuple[tuple[str, str, Callable[[Address, float], float]], ...] = (
    ("QoS 1, 10 publishers with 100 in flight", "/s", lambda at, s: mqttload.published_per_second(at, 1, s)),
    ("QoS 1, 10 publishers with 100 in flight, for a session that is away", "/s", mqttload.kept_per_second),
    ("QoS 2, 10 publishers with 100 in flight", "/s", lambda at, s: mqttload.published_per_second(at, 2, s)),
    ("QoS 0, 1 publisher to 10 subscribers", "/s", lambda at, s: mqttload.delivered_per_second(at, 10, s)),
    ("QoS 0, 1 publisher to 1,000 subscribers", "/s", lambda at, s: mqttload.delivered_per_second(at, 1_000, s)),
    ("1,000 publishers of QoS 1 to 1 subscriber", "/s", lambda at, s: mqttload.collected_per_second(at, 1_000, s)),
    ("lookups of 2,000 retained messages", "/s", lambda at, s: mqttload.retained_per_second(at, 2_000, s)),
    ("connections", "/s", mqttload.connects_per_second),
)  # fmt: skip


def _compare(session: Session, brokers: list[_Broker], rounds: int, seconds: float) -> None:
    for what, unit, load in _LOADS:
        if session.plan.quick and any(many in what for many in _THOUSANDS):
            continue
        rates: dict[str, list[float]] = {}
        spent: dict[str, list[float]] = {}
        for number in range(rounds):
            for broker in brokers:
                name = mqtt_name(what, broker.name, broker.durability)
                session.display.step(f"{name}, round {number + 1} of {rounds}")
                before, began = broker.usage(), time.perf_counter()
                try:
                    rate = load(broker.address, seconds)
                except (LoadError, OSError) as failure:
                    # RabbitMQ 3 answers QoS 2 with PUBACK, for example.
                    session.skip(NAME, name, str(failure), failed=isinstance(broker, _Ours))
                    continue
                cpu = broker.usage().cpu_seconds - before.cpu_seconds
                rates.setdefault(name, []).append(rate)
                spent.setdefault(name, []).append(cpu / (rate * (time.perf_counter() - began)) * 1e6)
        for name, found in rates.items():
            session.record_figure(NAME, name, unit, found)
            session.record_figure(NAME, f"{name}: CPU of the broker", "us", spent[name])


def _latency(session: Session, brokers: list[_Broker], rounds: int, seconds: float) -> None:
    """Before all else: of a load brokers have something to tidy up for a while."""
    for broker in brokers:
        p50s, p99s = [], []
        for number in range(rounds):
            session.display.step(f"latency, {broker.name}, round {number + 1} of {rounds}")
            try:
                found = mqttload.latencies_ms(broker.address, 1_000, seconds)
            except (LoadError, OSError) as failure:
                session.skip(NAME, f"latency, {broker.name}", str(failure), failed=isinstance(broker, _Ours))
                break
            p50, p99 = mqttload.percentiles(found)
            p50s.append(p50)
            p99s.append(p99)
        for what, values in (("p50", p50s), ("p99", p99s)):
            if values:
                name = mqtt_name(f"QoS 1 end to end at 1,000/s, {what}", broker.name, broker.durability)
                session.record_figure(NAME, name, "ms", values)


def _queue(session: Session, ours: _Ours, rounds: int, seconds: float) -> None:
    count = 10_000 if session.plan.quick else 100_000
    enqueued, worked_off = [], []
    for _ in range(rounds):
        session.display.step("one queue")
        names = session.unique("in"), session.unique("out")
        for name in names:
            ours.node.create_topic(name, 1, Durability.RELAXED)
        enqueued.append(
            mqttload.published_per_second(ours.address, 1, seconds, topic=f"$queue/{names[0]}/{{}}")
        )
        mqttload.fill(ours.address, f"$queue/{names[1]}/key", count)
        worked_off.append(mqttload.worked_off_per_second(ours.address, names[1], count))
    session.record_figure(NAME, MQTT_QUEUE_IN, "/s", enqueued)
    session.record_figure(NAME, MQTT_QUEUE_OUT, "/s", worked_off)


def _idle(session: Session, brokers: list[_Broker], count: int) -> None:
    for broker in brokers[:1] + brokers[2:]:
        session.display.step(f"{count} idle sessions, {broker.name}")
        try:
            opened = mqttload.idle_sessions(broker.address, count)
        except (LoadError, OSError, PeerError) as failure:
            session.skip(
                NAME, f"idle sessions, {broker.name}", str(failure), failed=isinstance(broker, _Ours)
            )
            continue
        used = broker.usage().rss_bytes / 1e6
        for each in opened:
            each.close()
        name = mqtt_name(
            f"memory of the broker with {count:,} idle sessions", broker.name, "each with a subscription"
        )
        session.record_figure(NAME, name, "MB", [used])
