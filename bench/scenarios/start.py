"""From the start of the process to the first acknowledged message, on an empty data directory.

The raw client creates the topic on the way, so the time includes a durable metadata change and a durable
append.
"""

from bench.peers.millstream import READY_TIMEOUT_SECONDS, Millstream
from bench.rawclient import wait_for_first_ack
from bench.scenarios.names import START_TO_FIRST_ACK, START_TO_READY
from bench.session import Session
from millstream.runtime.ports import ReservedPorts

NAME = "start"


def run(session: Session) -> None:
    ready, acknowledged = [], []
    rounds = session.plan.rounds_of(full=7, quick=3)
    for number in range(rounds):
        session.display.step(f"round {number + 1} of {rounds}")
        with session.data_directory() as directory, ReservedPorts() as reserved:
            (port,) = reserved.ports
            broker = Millstream(directory, port)
            try:
                at = wait_for_first_ack(port, "first", READY_TIMEOUT_SECONDS, broker.check_alive)
                acknowledged.append(at - broker.spawned_at)
                ready.append(broker.wait_ready())
            finally:
                broker.stop()
    session.record_figure(NAME, START_TO_READY, "s", ready)
    session.record_figure(NAME, START_TO_FIRST_ACK, "s", acknowledged)
