"""A copy for each of a session's filters that matches: all are taken or none, within the window, each once."""

import msgspec

from millstream.mqtt.connection import Opened
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.outbound import Offer, Outbound
from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr
from support.mqtt_talk import Talk


def connected(expiry=0, limits=None, **asked):
    talk = Talk(5, limits)
    asked["session_expiry_s"] = expiry or None
    talk.connect(Opened(), clean_start=not expiry, properties=pr.ConnectProperties(**asked))
    return talk


def copies(talk, *qos, offset=0):
    """Of one message, with the numbers of their filters as identifiers."""
    first = talk.delivery(2, offset)
    return [
        msgspec.structs.replace(first, qos=each, identifiers=(number,)) for number, each in enumerate(qos, 1)
    ]


def offered(talk, *qos, offset=0):
    first, *others = copies(talk, *qos, offset=offset)
    return talk.machine.deliver(first, talk.now_ms, others)


def shapes(packets):
    return [(each.packet_id, each.qos, each.properties.subscription_identifiers) for each in packets]


def test_each_has_its_qos_and_its_identifier():
    talk = connected()
    assert offered(talk, 2, 1, 0) is Offer.TAKEN
    assert shapes(talk.heard()) == [(1, 2, (1,)), (2, 1, (2,)), (0, 0, (3,))]


def test_they_keep_to_the_window():
    talk = connected(receive_maximum=1)
    offered(talk, 1, 1)
    assert shapes(talk.heard()) == [(1, 1, (1,))]
    assert shapes(talk.say(p.Puback(1))) == [(2, 1, (2,))]


def test_identifiers_of_qos_2_become_durable_together_and_are_sent_within_the_window():
    talk = connected(expiry=100, receive_maximum=1)
    offered(talk, 2, 2)
    (want,) = talk.machine.take().wants
    assert [each.packet_id for each in want.entries] == [1, 2], "the session's place in the log passes both"
    talk.machine.reserved([1, 2], talk.now_ms)
    assert talk.heard() == [sent(1)]
    talk.say(p.Pubrec(1))
    talk.machine.kept_received([1])
    assert talk.heard() == [p.Pubrel(1)]
    assert talk.say(p.Pubcomp(1)) == [sent(2)], "it was not sent before: no DUP"


def sent(number):
    properties = pr.PublishProperties(subscription_identifiers=(number,))
    return p.Publish("t", b"x", 2, number, properties=properties)


def test_those_that_waited_become_durable_together_too():
    talk = connected(expiry=100, receive_maximum=1)
    talk.machine.deliver(talk.delivery(1), talk.now_ms)
    offered(talk, 2, 2, 1, offset=1)
    assert len(talk.machine.outbound.queued) == 3
    talk.say(p.Puback(1))
    (want,) = talk.wants
    assert [each.delivery.identifiers for each in want.entries] == [(1,), (2,)]
    assert [each.identifiers for each in talk.machine.outbound.queued] == [(3,)]


def test_all_are_taken_or_none():
    limits = MqttLimits(max_queued=3)
    talk = connected(limits=limits, receive_maximum=1)
    assert offered(talk, 1, 1, 1, 1, 1, 1) is Offer.TAKEN, "more than ever fit must come all the same"
    assert offered(talk, 1, 1) is Offer.FULL
    assert len(talk.machine.outbound.queued) == 5
    outbound = Outbound(5, limits, receive_maximum=1)
    outbound.offer(talk.delivery(1), 0)
    outbound.offer(talk.delivery(1), 0)
    assert outbound.offer_copies(copies(talk, 1, 1, 1), 0) is Offer.FULL
    assert len(outbound.queued) == 1
