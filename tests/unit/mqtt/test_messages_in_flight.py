"""What a client was sent and did not acknowledge is owed to it, also where it cannot be read when it comes back."""

import asyncio
from types import SimpleNamespace

import pytest

from millstream.coordinator.mqtt_sessions.records import FlightStage, StoredFlight
from millstream.coordinator.mqtt_sessions.requests import Reserve
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V5, Connect
from millstream.protocol.mqtt.properties import ConnectProperties
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_house import Wire, run


class Partitions:
    def __init__(self, code):
        self.code = code

    async def read(self, *_place, **_options):
        raise KafkaError(self.code, "it cannot be read")


async def in_flight_after_a_connection(house, code):
    """What CONNACK said, and the identifiers that the session has then."""
    house.door.shared.doors.partitions = Partitions(code)
    coordinator = house.line.coordinator
    for is_second in (False, True):
        wire = Wire()
        user = house.door.accept(wire)
        properties = ConnectProperties(session_expiry_s=3600)
        user.data(encode(Connect("c", V5, clean_start=not is_second, properties=properties), V5))
        await asyncio.sleep(5)
        if not is_second:
            (client,) = house.door.shared.attending.clients.values()
            flight = StoredFlight("mqtt", 0, 7, 2, 0, FlightStage.SENT, 1)
            coordinator.ask(Reserve("c", client.epoch, ((20, flight),)))
            # As a node that was killed: it says nothing of the connection's end.
            house.door.shared.attending.remove(client, client.link.shard)
    user.lost()
    await asyncio.sleep(1)
    return wire.got[0].reason, list(coordinator.machine.state.sessions["c"].flights)


def test_a_message_that_cannot_be_read_now_stays_owed():
    async def scenario(house):
        found = await in_flight_after_a_connection(house, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert found == (Reason.SERVER_UNAVAILABLE, [20])

    run(scenario)


def test_a_message_that_the_log_has_no_more_is_owed_no_more():
    async def scenario(house):
        assert await in_flight_after_a_connection(house, ErrorCode.OFFSET_OUT_OF_RANGE) == (0, [])

    run(scenario)


@pytest.mark.parametrize(("replicas", "told"), [(3, (Reason.SERVER_UNAVAILABLE, [20])), (1, (0, []))])
def test_a_damaged_message_stays_owed_where_another_replica_may_have_it(replicas, told):
    async def scenario(house):
        house.topic.partitions = [SimpleNamespace(replicas=range(replicas))]
        assert await in_flight_after_a_connection(house, ErrorCode.CORRUPT_MESSAGE) == told

    run(scenario)
