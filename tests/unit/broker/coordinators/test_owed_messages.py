"""What a coordinator of MQTT sessions owes to the log is appended, however often it is tried."""

from types import SimpleNamespace
from typing import Any

from millstream.broker.coordinators.mqtt_sessions import MqttSessions
from millstream.coordinator.mqtt_sessions.records import KeptMessage
from millstream.coordinator.mqtt_sessions.requests import AppendOwed, Owed, OwedAppended
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.observability.metrics import Registry
from millstream.protocol.errors import ErrorCode, KafkaError
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


def test_a_message_is_appended_though_the_clock_was_ahead_when_it_was_tried_first() -> None:
    """It was acknowledged to its publisher by then."""
    loop, partitions, reported = SimulatedLoop(), Partitions(), []

    async def decide_in(_partition: int, request: Any) -> None:
        reported.append(request)

    # A coordinator that never gets it done has moved in the end, so that the test ends.
    hosted: Any = SimpleNamespace(machine=lambda _partition: partitions.refused < 20, decide_in=decide_in)
    unused: Any = None
    sessions = MqttSessions(
        lambda: hosted,
        partitions,  # type: ignore[arg-type]
        unused,
        unused,
        lambda: NOW_MS if loop.time() > 3 else AHEAD_MS,
        SessionSettings(),
        Registry(),
    )
    owed = Owed(5, KeptMessage("mqtt", 0, b"t", b"x", ()), 0)
    loop.run(sessions._append(0, AppendOwed(1, 0, (owed,))))
    assert partitions.refused
    assert (partitions.taken, reported) == ([NOW_MS], [OwedAppended((5,))])
