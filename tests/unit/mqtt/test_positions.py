"""What a session tells of how far it has read: nothing that another connection would have to deliver."""

from types import SimpleNamespace
from typing import Any

import pytest

from millstream.doors import Place
from millstream.doors.partitions import Offsets
from millstream.mqtt.outbound import InFlight, Stage
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.reading import Reading
from millstream.mqtt.record_form import Message
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.simulator.loop import SimulatedLoop

PLACE = Place("mqtt", 0)
READ_TO = 10


def saved(*in_flight: InFlight, queued: tuple[Delivery, ...] = ()) -> int:
    nothing: Any = None
    subscribers: Any = SimpleNamespace(copies=False)
    reading = Reading(nothing, nothing, nothing, subscribers, nothing, lambda _topic: b"id", lambda _: True)
    reading.add([PLACE])
    reading.fall_behind(PLACE, READ_TO)
    (position,) = reading.positions(queued, in_flight)
    return position.offset


def delivery(offset: int, qos: int) -> Delivery:
    return Delivery(Outgoing(Message("t", b"m"), PLACE, offset), qos)


@pytest.mark.parametrize(
    ("qos", "stage", "offset"),
    [
        (1, Stage.SENT, 5),
        # Its identifier is on its way to the coordinator, and a session may be taken over before it is there.
        (2, Stage.RESERVED, 5),
        (2, Stage.SENT, READ_TO),
        (2, Stage.RECEIVED, READ_TO),
        (2, Stage.RELEASED, READ_TO),
    ],
)
def test_the_position_passes_what_is_durable_under_its_identifier(
    qos: int, stage: Stage, offset: int
) -> None:
    assert saved(InFlight(1, delivery(5, qos), stage)) == offset


def test_the_position_stays_before_what_waits_for_room() -> None:
    assert saved(InFlight(1, delivery(7, 1), Stage.SENT), queued=(delivery(8, 2),)) == 7
    assert saved(queued=(delivery(8, 2),)) == 8


def test_a_session_goes_on_behind_what_was_deleted_when_it_is_known_where_that_is() -> None:
    answers = [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it moves"), Offsets(7, 20, 20)]

    class Partitions:
        async def offsets(self, *_: object) -> Offsets:
            answer = answers.pop(0)
            if isinstance(answer, KafkaError):
                raise answer
            return answer

    partitions: Any = Partitions()
    nothing: Any = SimpleNamespace(copies=False, client_id="c")
    reading = Reading(partitions, nothing, nothing, nothing, nothing, lambda _topic: b"id", lambda _: True)
    reading.fall_behind(PLACE, 3)
    deleted = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "it was deleted")
    found = []
    for _ in range(2):
        SimulatedLoop().run(reading._recover_from(deleted, PLACE, None))
        found.append(reading.behind[PLACE])
    assert found == [3, 7]
