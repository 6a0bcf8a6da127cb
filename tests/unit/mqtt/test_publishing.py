"""What a client publishes: acknowledged in order when it is durable, and QoS 2 once."""

import pytest

from millstream.mqtt.connection import Opened, State
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.record_form import Message
from millstream.mqtt.wants import WantReceive, WantRelease, WantSend
from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_talk import Talk


def talk_of(version=5, session=None, **limits):
    talk = Talk(version, MqttLimits(**limits))
    talk.connect(session)
    return talk


@pytest.mark.parametrize("version", [4, 5])
def test_puback_comes_when_it_is_durable(version):
    talk = talk_of(version)
    assert talk.say(p.Publish("a/b", b"x", 1, 7)) == []
    assert talk.wants == [WantSend(7, Message("a/b", b"x", 1, publisher="c1"))]
    talk.machine.sent(7)
    assert talk.heard() == [p.Puback(7)]


def test_qos_0_is_not_answered():
    talk = talk_of()
    assert talk.say(p.Publish("a", b"x")) == []
    assert talk.wants == [WantSend(0, Message("a", b"x", 0, publisher="c1"))]
    talk.machine.sent(0)
    assert talk.heard() == []


def test_pubacks_keep_the_order_of_their_messages():
    talk = talk_of()
    talk.say(*(p.Publish("a", b"", 1, number) for number in (1, 2, 3)))
    talk.machine.sent(3)
    talk.machine.sent(2, Reason.QUOTA_EXCEEDED, "full")
    assert talk.heard() == []
    talk.machine.sent(1)
    assert talk.heard() == [
        p.Puback(1),
        p.Puback(2, 0x97, pr.AckProperties(reason_string="full")),
        p.Puback(3),
    ]


def test_a_client_that_wants_no_explanations_gets_the_code_alone():
    talk = Talk()
    talk.connect(properties=pr.ConnectProperties(request_problem_information=0))
    talk.say(p.Publish("a", b"", 1, 1))
    talk.machine.sent(1, Reason.NOT_AUTHORIZED, "no")
    assert talk.heard() == [p.Puback(1, 0x87)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_client_of_3_whose_message_is_refused_is_disconnected_not_acknowledged(qos):
    talk = talk_of(4)
    talk.say(p.Publish("a", b"", qos, 1))
    (talk.machine.sent if qos == 1 else talk.machine.received)(1, Reason.NOT_AUTHORIZED)
    assert talk.heard() == []
    assert talk.machine.state is State.CLOSED


@pytest.mark.parametrize("version", [4, 5])
def test_qos_2_is_one_message_however_often_it_is_repeated(version):
    talk = talk_of(version)
    publish = p.Publish("a", b"x", 2, 9)
    assert talk.say(publish) == []
    assert talk.wants == [WantReceive(9, Message("a", b"x", 2, publisher="c1"))]
    again = p.Publish("a", b"x", 2, 9, dup=True)
    assert talk.say(again) == []
    assert talk.wants == []
    talk.machine.received(9)
    assert talk.heard() == [p.Pubrec(9)]
    for _ in range(3):
        assert talk.say(again) == [p.Pubrec(9)]
        assert talk.wants == []
    assert talk.say(p.Pubrel(9)) == []
    assert talk.wants == [WantRelease(9)]
    assert talk.say(p.Pubrel(9)) == []
    assert talk.wants == []
    talk.machine.released(9)
    assert talk.heard() == [p.Pubcomp(9)]
    talk.say(publish)
    assert isinstance(talk.wants[0], WantReceive), "the identifier is free again"


def test_qos_2_goes_on_where_the_connection_before_stopped():
    talk = talk_of(5, Opened(present=True, unreleased=[4]))
    assert talk.say(p.Publish("a", b"x", 2, 4, dup=True)) == [p.Pubrec(4)]
    assert talk.wants == []
    talk.say(p.Pubrel(4))
    assert talk.wants == [WantRelease(4)]


@pytest.mark.parametrize("version", [4, 5])
def test_pubrel_of_a_message_that_was_released_is_answered_without_an_error(version):
    assert talk_of(version).say(p.Pubrel(3)) == [p.Pubcomp(3)]


def test_a_refused_message_of_qos_2_frees_its_identifier():
    talk = talk_of()
    talk.say(p.Publish("a", b"", 2, 1))
    talk.machine.received(1, Reason.QUOTA_EXCEEDED)
    assert talk.heard() == [p.Pubrec(1, 0x97)]
    talk.say(p.Publish("a", b"", 2, 1))
    assert isinstance(talk.wants[0], WantReceive)


def test_more_than_the_receive_maximum_ends_the_connection():
    talk = talk_of(receive_maximum=2)
    talk.say(p.Publish("a", b"", 1, 1), p.Publish("a", b"", 2, 2))
    (said,) = talk.say(p.Publish("a", b"", 1, 3))
    assert said.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
    talk = talk_of(receive_maximum=2)
    talk.say(p.Publish("a", b"", 1, 1), p.Publish("a", b"", 2, 2))
    talk.machine.sent(1)
    talk.machine.received(2)
    talk.heard()
    assert talk.say(p.Publish("a", b"", 1, 3), p.Publish("a", b"", 2, 2, dup=True)) == [p.Pubrec(2)]
    (said,) = talk.say(p.Publish("a", b"", 0), p.Publish("a", b"", 1, 4))
    assert said.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_qos_0_is_not_counted():
    talk = talk_of(receive_maximum=1)
    assert talk.say(*[p.Publish("a", b"")] * 5) == []
    assert len(talk.wants) == 5


def alias(number):
    return pr.PublishProperties(topic_alias=number)


def test_aliases_stand_for_topics():
    talk = talk_of()
    talk.say(
        p.Publish("a", b"1", properties=alias(1)),
        p.Publish("", b"2", properties=alias(1)),
        p.Publish("b", b"3", properties=alias(1)),
        p.Publish("", b"4", properties=alias(1)),
    )
    assert [want.message.topic for want in talk.wants] == ["a", "a", "b", "b"]
    assert all(want.message.properties.topic_alias is None for want in talk.wants)


@pytest.mark.parametrize(
    ("number", "topic", "reason"),
    [
        (9, "a", Reason.TOPIC_ALIAS_INVALID),
        (8, "", Reason.PROTOCOL_ERROR),
        (1, "x" * 101, Reason.QUOTA_EXCEEDED),
    ],
)
def test_aliases_that_cannot_be_end_the_connection(number, topic, reason):
    talk = talk_of(topic_alias_maximum=8, max_alias_bytes=100)
    (said,) = talk.say(p.Publish(topic, b"", properties=alias(number)))
    assert said.reason == reason


def test_properties_travel_and_the_expiry_becomes_a_time():
    properties = pr.PublishProperties((("a", "1"), ("a", "2")), 1, 60, "text/plain", "answer/here", b"\x01")
    talk = talk_of()
    talk.say(p.Publish("a", b"", properties=properties))
    message = talk.wants[0].message
    assert message.expires_ms == talk.now_ms + 60_000
    assert message.properties == pr.PublishProperties(
        (("a", "1"), ("a", "2")), 1, None, "text/plain", "answer/here", b"\x01"
    )


def test_nothing_is_done_for_a_connection_that_has_ended():
    talk = talk_of()
    talk.say(p.Publish("a", b"", 1, 1), p.Publish("a", b"", 2, 2))
    talk.machine.lost()
    talk.heard()
    talk.machine.sent(1)
    talk.machine.received(2)
    talk.machine.released(2)
    talk.machine.subscribed(3, [0], 0)
    assert talk.heard() == []
    assert talk.wants == []
