"""Brokers come, give signs of life, fall silent and leave."""

import uuid

import pytest
from msgspec.structs import replace

from millstream.cluster.metadata.brokers import (
    BrokerHeartbeat,
    BrokerStanding,
    FenceBroker,
    RegisterBroker,
    UnregisterBroker,
)
from millstream.cluster.metadata.commands import Command
from millstream.cluster.metadata.fencing import BrokerSessions
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.records import Endpoint
from millstream.protocol.errors import ErrorCode, KafkaError

ENDPOINTS = (Endpoint("PLAINTEXT", "localhost", 9092),)


def after(image: MetadataImage, *commands: Command[object]) -> MetadataImage:
    for command in commands:
        image = image.apply(command.decide(image, uuid.uuid4).records)
    return image


def registered(*numbers: int) -> MetadataImage:
    return after(MetadataImage(), *(RegisterBroker(number, ENDPOINTS, is_fenced=True) for number in numbers))


def live(image: MetadataImage) -> list[int]:
    return [broker.broker_id for broker in image.live_brokers]


def test_a_broker_is_let_in_by_its_first_sign_of_life() -> None:
    image = registered(1, 2)
    assert live(image) == []
    image = after(image, BrokerHeartbeat(2, image.brokers[2].epoch))
    assert live(image) == [2]
    decision = BrokerHeartbeat(2, image.brokers[2].epoch).decide(image, uuid.uuid4)
    assert (decision.records, decision.result) == ((), BrokerStanding(is_fenced=False, may_stop=False))


def test_a_broker_that_wants_to_stop_is_fenced_first() -> None:
    image = registered(1)
    image = after(image, BrokerHeartbeat(1, 0), BrokerHeartbeat(1, 0, wants_to_stop=True))
    assert live(image) == []


def test_a_silent_broker_is_fenced_and_comes_back() -> None:
    image = after(registered(1), BrokerHeartbeat(1, 0), FenceBroker(1, 0))
    assert live(image) == []
    assert live(after(image, BrokerHeartbeat(1, 0))) == [1]


def test_a_registration_that_is_asked_for_again_is_one() -> None:
    """The answer was lost. As two, the broker would count as one that ended uncleanly in between."""
    image = after(registered(1), BrokerHeartbeat(1, 0), BrokerHeartbeat(1, 0, wants_to_stop=True))
    asked = RegisterBroker(1, ENDPOINTS, is_fenced=True, previous_epoch=0, incarnation=uuid.uuid4())
    first = asked.decide(image, uuid.uuid4)
    image = image.apply(first.records)
    again = asked.decide(image, uuid.uuid4)
    assert (again.records, again.result) == ((), first.result)
    other = replace(asked, incarnation=uuid.uuid4())
    assert other.decide(image, uuid.uuid4).result == first.result + 1


def test_an_earlier_life_neither_beats_nor_is_fenced_for_the_later_one() -> None:
    image = after(registered(1), RegisterBroker(1, ENDPOINTS))
    assert image.brokers[1].epoch == 1
    with pytest.raises(KafkaError, match="epoch is 1, not 0") as caught:
        BrokerHeartbeat(1, 0).decide(image, uuid.uuid4)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert not FenceBroker(1, 0).decide(image, uuid.uuid4).records


def test_who_is_not_registered_is_told_so() -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerHeartbeat(7, 0).decide(registered(1), uuid.uuid4)
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_directory_that_was_removed_does_not_register_again_and_another_does() -> None:
    old = RegisterBroker(2, ENDPOINTS, is_fenced=True, directory=uuid.UUID(int=2))
    image = after(registered(1), old, UnregisterBroker(2))
    with pytest.raises(KafkaError, match="was removed from the cluster") as caught:
        old.decide(image, uuid.uuid4)
    assert caught.value.code is ErrorCode.INVALID_REGISTRATION
    new = RegisterBroker(2, ENDPOINTS, is_fenced=True, directory=uuid.UUID(int=3))
    assert 2 in after(image, new).brokers


def test_silence_for_a_session_is_noticed() -> None:
    sessions = BrokerSessions(1.0, now=0.0)
    sessions.heard(1, 0.0)
    sessions.heard(2, 0.0)
    expired = []
    for tenth in range(1, 16):
        sessions.heard(2, tenth / 10)
        expired += [(broker, tenth) for broker in sessions.expired([1, 2], tenth / 10)]
    assert expired[0] == (1, 11)
    assert all(broker == 1 for broker, _ in expired)


def test_a_new_controller_gives_everyone_a_whole_session() -> None:
    sessions = BrokerSessions(1.0, now=50.0)
    assert sessions.expired([1], 50.1) == []
    assert sessions.expired([1], 50.5) == []
    assert sessions.expired([1], 51.0) == []
    assert sessions.expired([1], 51.2) == [1]


def test_a_pause_of_the_controllers_own_is_nobodys_silence() -> None:
    sessions = BrokerSessions(1.0, now=0.0)
    sessions.heard(1, 0.0)
    assert sessions.expired([1], 0.1) == []
    assert sessions.expired([1], 30.0) == []
    assert sessions.expired([1], 30.4) == []
    assert sessions.expired([1], 30.8) == []
    assert sessions.expired([1], 31.1) == [1]


def test_a_broker_that_cannot_write_is_fenced_until_it_can() -> None:
    image = registered(1, 2)
    epochs = {number: broker.epoch for number, broker in image.brokers.items()}
    image = after(image, BrokerHeartbeat(1, epochs[1]), BrokerHeartbeat(2, epochs[2]))
    ill = BrokerHeartbeat(2, epochs[2], can_write=False)
    assert ill.decide(image, uuid.uuid4).result == BrokerStanding(is_fenced=True, may_stop=False)
    image = after(image, ill)
    assert live(image) == [1]
    assert after(image, ill) == image
    # With nobody else left, what is there can still be read.
    last = BrokerHeartbeat(1, epochs[1], can_write=False).decide(image, uuid.uuid4)
    assert (last.records, last.result.is_fenced) == ((), False)
    assert live(after(image, BrokerHeartbeat(2, epochs[2]))) == [1, 2]


def test_a_broker_that_cannot_write_is_not_fenced_while_it_serves() -> None:
    """It was the last one before; another must not lead until it knows."""
    image = registered(1, 2)
    epochs = {number: broker.epoch for number, broker in image.brokers.items()}
    image = after(image, BrokerHeartbeat(1, epochs[1]), BrokerHeartbeat(2, epochs[2]))
    serving = BrokerHeartbeat(2, epochs[2], can_write=False, is_serving=True).decide(image, uuid.uuid4)
    assert (serving.records, serving.result.is_fenced) == ((), True)
    assert live(after(image, BrokerHeartbeat(2, epochs[2], can_write=False))) == [1]
