"""What a client was sent and did not acknowledge is owed to it, also where it cannot be read when it comes back."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.coordinator.mqtt_sessions.records import FlightStage, StoredFlight
from millstream.coordinator.mqtt_sessions.requests import Reserve
from millstream.doors.partitions import LogRead
from millstream.mqtt.outbound import InFlight, Stage
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connect
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_house import Wire, run

LEFT = StoredFlight("mqtt", 0, 7, 2, 0, FlightStage.SENT, number=9)


class Partitions:
    def __init__(self, code):
        self.code = code

    async def read(self, *_place, **_options):
        raise KafkaError(self.code, "it cannot be read")


class NewLeader:
    """It has the record, and does not know yet that it is committed."""

    async def read(self, _caller, place, offset, **_options):
        return LogRead(place, offset, offset, memoryview(b""), offset, offset, 0)


async def in_flight_after_a_connection(house, partitions):
    """What CONNACK said, and the identifiers that the session has then."""
    house.door.shared.doors.partitions = partitions
    coordinator = house.line.coordinator
    for is_second in (False, True):
        wire = Wire()
        user = house.door.accept(wire)
        properties = ConnectProperties(session_expiry_s=3600)
        user.data(encode(Connect("c", V5, clean_start=not is_second, properties=properties), V5))
        await asyncio.sleep(5)
        if not is_second:
            (client,) = house.door.shared.attending.clients.values()
            coordinator.ask(Reserve("c", client.epoch, ((20, LEFT),)))
            # As a node that was killed: it says nothing of the connection's end.
            house.door.shared.attending.remove(client, client.link.shard)
    user.lost()
    await asyncio.sleep(1)
    return wire.got[0].reason, list(coordinator.machine.state.sessions["c"].flights)


def test_a_message_that_cannot_be_read_now_stays_owed():
    async def scenario(house):
        found = await in_flight_after_a_connection(house, Partitions(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert found == (Reason.SERVER_UNAVAILABLE, [20])

    run(scenario)


def test_a_message_that_the_log_has_no_more_is_owed_no_more():
    async def scenario(house):
        assert await in_flight_after_a_connection(house, Partitions(ErrorCode.OFFSET_OUT_OF_RANGE)) == (0, [])

    run(scenario)


def test_a_message_that_a_new_leader_does_not_show_yet_stays_owed():
    """It was taken for one that the log has no more: it came behind later ones, or never."""

    async def scenario(house):
        found = await in_flight_after_a_connection(house, NewLeader())
        assert found == (Reason.SERVER_UNAVAILABLE, [20])

    run(scenario)


def test_what_a_connection_reserves_is_behind_what_it_was_left():
    """In the order of their numbers they are sent again."""

    async def scenario(house):
        await in_flight_after_a_connection(house, NewLeader())
        house.door.shared.doors.partitions = Partitions(ErrorCode.OFFSET_OUT_OF_RANGE)
        user = house.door.accept(Wire())
        properties = ConnectProperties(session_expiry_s=3600)
        user.data(encode(Connect("c", V5, clean_start=False, properties=properties), V5))
        await asyncio.sleep(1)
        (client,) = house.door.shared.attending.clients.values()
        ((_, flight),) = client.link.flights([InFlight(21, None, Stage.RESERVED)])
        assert flight.number > LEFT.number

    run(scenario)


@pytest.mark.parametrize(("replicas", "told"), [(3, (Reason.SERVER_UNAVAILABLE, [20])), (1, (0, []))])
def test_a_damaged_message_stays_owed_where_another_replica_may_have_it(replicas, told):
    async def scenario(house):
        house.topic.partitions = [SimpleNamespace(replicas=range(replicas))]
        assert await in_flight_after_a_connection(house, Partitions(ErrorCode.CORRUPT_MESSAGE)) == told

    run(scenario)
