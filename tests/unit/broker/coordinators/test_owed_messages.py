"""What a coordinator of MQTT sessions owes to the log is appended, however often it is tried."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from millstream.broker.coordinators.mqtt_sessions import MqttSessions
from millstream.coordinator.mqtt_sessions.records import KeptMessage
from millstream.coordinator.mqtt_sessions.requests import (
    AppendPending,
    PendingAppended,
    PendingMessage,
    PendingRefused,
)
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.observability.metrics import Registry
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone
from millstream.protocol.records import decode_records
from millstream.testing.simulator.loop import SimulatedLoop

AHEAD_MS, NOW_MS = 7_200_000, 1_000


class Partitions:
    """A leader that refuses times that are far ahead of its own clock."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.refused = 0

    async def append(self, _caller: Any, _place: Any, batch: bytes) -> None:
        (record,) = decode_records(memoryview(batch), 1 << 20)
        if record.timestamp_ms > NOW_MS:
            self.refused += 1
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "the time is out of range")
        self.taken.append(record.timestamp_ms)


class NewTopic(Partitions):
    """One that this node hears of when it was asked for some times."""

    async def append(self, caller: Any, place: Any, batch: bytes) -> None:
        if self.refused < 3:
            self.refused += 1
            raise NotDone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        await super().append(caller, place, batch)


def appended(loop: SimulatedLoop, partitions: Partitions, now_ms: Callable[[], int]) -> list[Any]:
    """What the coordinator hears of a message that it owes."""
    reported: list[Any] = []

    async def decide_in(_partition: int, request: Any) -> None:
        reported.append(request)

    # A coordinator that never gets it done has moved in the end, so that the test ends.
    hosted: Any = SimpleNamespace(machine=lambda _partition: partitions.refused < 200, decide_in=decide_in)
    unused: Any = None
    sessions = MqttSessions(
        lambda: hosted,
        partitions,  # type: ignore[arg-type]
        unused,
        unused,
        now_ms,
        SessionSettings(),
        Registry(),
    )
    pending = PendingMessage(5, KeptMessage("mqtt", 0, b"t", b"x", ()), 0)
    loop.run(sessions._append(0, AppendPending(1, 0, (pending,))))
    return reported


def test_a_message_is_appended_though_the_clock_was_ahead_when_it_was_tried_first() -> None:
    """It was acknowledged to its publisher by then."""
    loop, partitions = SimulatedLoop(), Partitions()
    reported = appended(loop, partitions, lambda: NOW_MS if loop.time() > 3 else AHEAD_MS)
    assert partitions.refused
    assert (partitions.taken, reported) == ([NOW_MS], [PendingAppended((5,))])


def test_a_message_is_not_dropped_because_its_topic_is_not_known_here_yet() -> None:
    """The door that took it knows; the coordinator's node hears of new topics a little later."""
    partitions = NewTopic()
    reported = appended(SimulatedLoop(), partitions, lambda: NOW_MS)
    assert (partitions.taken, reported) == ([NOW_MS], [PendingAppended((5,))])


def test_a_message_for_a_topic_that_was_deleted_is_dropped_in_the_end() -> None:
    class Deleted(Partitions):
        async def append(self, _caller: Any, _place: Any, _batch: bytes) -> None:
            self.refused += 1
            raise NotDone(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")

    assert appended(SimulatedLoop(), Deleted(), lambda: NOW_MS) == [PendingRefused(5)]
