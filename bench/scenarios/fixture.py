"""What a test pays for a broker of its own: from entering `EmbeddedBroker` to the first message that it stored."""

import time

import confluent_kafka

from bench.scenarios.names import FIXTURE_STOP, FIXTURE_TO_FIRST_MESSAGE, FIXTURE_TO_READY
from bench.session import Session
from millstream.testing import EmbeddedBroker

NAME = "fixture"


def run(session: Session) -> None:
    ready: list[float] = []
    first: list[float] = []
    stopped: list[float] = []
    rounds = session.plan.rounds_of(full=7, quick=3)
    for number in range(rounds):
        session.display.step(f"round {number + 1} of {rounds}")
        began = time.perf_counter()
        with EmbeddedBroker(topics={"events": 3}) as broker:
            ready.append(time.perf_counter() - began)
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("events", b"first")
            producer.flush()
            first.append(time.perf_counter() - began)
            stopping = time.perf_counter()
        stopped.append(time.perf_counter() - stopping)
    session.record_figure(NAME, FIXTURE_TO_READY, "s", ready)
    session.record_figure(NAME, FIXTURE_TO_FIRST_MESSAGE, "s", first)
    session.record_figure(NAME, FIXTURE_STOP, "s", stopped)
