"""Resident memory of the broker: just started, a while later, and idle again after load."""

import time

from bench.loads import ProduceLoad
from bench.peers import Durability
from bench.scenarios.names import IDLE_MEMORY_AT_START, IDLE_MEMORY_LATER, MEMORY_AFTER_LOAD
from bench.session import Session

NAME = "memory"
_MB = 1_000_000


def run(session: Session) -> None:
    idle_seconds = 5 if session.plan.quick else 30
    with session.millstream() as broker:
        session.record_figure(NAME, IDLE_MEMORY_AT_START, "MB", [broker.usage().rss_bytes / _MB])
        session.display.step(f"idle for {idle_seconds} s")
        time.sleep(idle_seconds)
        session.record_figure(NAME, IDLE_MEMORY_LATER, "MB", [broker.usage().rss_bytes / _MB])
        session.display.step("1 million messages of 100 B")
        broker.create_topic("load", 4, Durability.RELAXED)
        session.run_load(broker, ProduceLoad(4, 100, 60, max_bytes=100 * _MB), "load")
        time.sleep(2)
        session.record_figure(NAME, MEMORY_AFTER_LOAD, "MB", [broker.usage().rss_bytes / _MB])
