"""What a session's coordinator is asked after it has refused something."""

import asyncio
from types import SimpleNamespace
from typing import Any

from millstream.coordinator.mqtt_sessions.requests import Done, Reserve
from millstream.doors import Place
from millstream.mqtt.outbound import InFlight, Stage
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.record_form import Message
from millstream.mqtt.session_link import SessionLink
from millstream.mqtt.wants import WantReceive, WantReserve
from millstream.protocol.errors import ErrorCode, KafkaError, NotDone


class Coordinators:
    """The first request waits and is refused; all others are answered."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.goes_on = asyncio.Event()

    async def ask(self, _caller: Any, _kind: Any, _key: str, request: Any, **_: Any) -> Done:
        self.asked.append(request)
        if len(self.asked) == 1:
            await self.goes_on.wait()
            raise NotDone(ErrorCode.NOT_COORDINATOR, "it is not coordinated here")
        return Done()


class Owner:
    def __init__(self) -> None:
        self.failures: list[KafkaError] = []
        self.ids: list[int] = []

    def reserved(self, packet_ids: Any) -> None:
        self.ids += packet_ids

    def failed(self, error: KafkaError, _packet_ids: Any) -> bool:
        self.failures.append(error)
        return False


def reservation(packet_id: int, offset: int) -> WantReserve:
    outgoing = Outgoing(Message("t", b""), Place("mqtt", 0), offset)
    return WantReserve((InFlight(packet_id, Delivery(outgoing, 2, False, ()), Stage.RESERVED),))


def test_no_message_is_reserved_behind_one_that_could_not_be() -> None:
    """The session would count as having been given all up to the second one, and never get the first."""

    async def told() -> tuple[Coordinators, Owner]:
        coordinators, owner = Coordinators(), Owner()
        parts: Any = (coordinators, None, None, "client", 1, 0, 0, owner)
        link = SessionLink(*parts)
        link.add(reservation(20, 7))
        await asyncio.sleep(0)
        link.add(reservation(21, 8))
        coordinators.goes_on.set()
        await link.settled()
        link.add(reservation(22, 9))
        await link.settled()
        return coordinators, owner

    coordinators, owner = asyncio.run(told())
    assert [type(each) for each in coordinators.asked] == [Reserve]
    assert len(owner.failures) == 1
    assert owner.ids == []


def test_a_message_that_is_refused_alone_does_not_undo_that() -> None:
    """The connection has ended; that something else of it was refused for good is no reason to go on."""

    class Ended(Owner):
        def failed(self, error: KafkaError, packet_ids: Any) -> bool:
            return super().failed(error, packet_ids) or bool(packet_ids)

    class Refusing:
        async def kept(self, _message: Any) -> None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "it is not allowed")

    async def told() -> Coordinators:
        coordinators, owner = Coordinators(), Ended()
        coordinators.goes_on.set()
        parts: Any = (coordinators, Refusing(), None, "client", 1, 0, 0, owner)
        link = SessionLink(*parts)
        message: Any = SimpleNamespace(payload=b"")
        link.add(WantReceive(1, message))
        link.add(reservation(20, 7))
        link.add(WantReceive(2, message))
        await link.settled()
        link.add(reservation(21, 8))
        await link.settled()
        return coordinators

    assert [type(each) for each in asyncio.run(told()).asked] == [Reserve]
