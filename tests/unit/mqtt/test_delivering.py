"""What a client is sent: within its window, under identifiers that are free, on with where it stopped."""

import pytest

from millstream.mqtt.connection import Opened, State
from millstream.mqtt.limits import MqttLimits, SlowSubscribers
from millstream.mqtt.outbound import InFlight, Offer, Stage
from millstream.mqtt.record_form import Message
from millstream.mqtt.subscriptions import Subscription
from millstream.mqtt.wants import WantKeepReceived, WantReserve, WantSubscribe, WantUnsubscribe
from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_talk import Talk


def talk_of(version=5, session=None, expiry=0, limits=None, **asked):
    talk = Talk(version, limits)
    fields = {"clean_start": not expiry}
    if version == 5:
        fields["properties"] = pr.ConnectProperties(session_expiry_s=expiry or None, **asked)
    talk.connect(session, **fields)
    return talk


@pytest.mark.parametrize("version", [4, 5])
def test_each_qos_has_its_packet(version):
    talk = talk_of(version)
    assert talk.deliver(Message("t", b"x"), 0) == (Offer.TAKEN, [p.Publish("t", b"x")])
    assert talk.deliver(Message("t", b"x"), 1, retain=True)[1] == [p.Publish("t", b"x", 1, 1, True)]
    assert talk.deliver(Message("t", b"x"), 2)[1] == [p.Publish("t", b"x", 2, 2)]


def test_the_window_holds_back_what_was_not_acknowledged():
    talk = talk_of(receive_maximum=2)
    heard = [talk.deliver(Message("t", b"%d" % number), 1)[1] for number in range(4)]
    assert [len(each) for each in heard] == [1, 1, 0, 0]
    assert [each.payload for each in talk.say(p.Puback(2))] == [b"2"]
    assert [each.payload for each in talk.say(p.Puback(1), p.Puback(3))] == [b"3"]
    assert talk.say(p.Puback(1)) == [], "an unknown one is nothing"


def test_qos_2_gives_its_place_back_with_pubcomp_or_a_refusal():
    talk = talk_of(receive_maximum=1)
    talk.deliver(Message("t", b"1"), 2)
    talk.deliver(Message("t", b"2"), 2)
    assert talk.say(p.Pubrec(1)) == [p.Pubrel(1)]
    assert talk.say(p.Pubrec(1)) == [p.Pubrel(1)], "said again"
    (following,) = talk.say(p.Pubcomp(1))
    assert following.payload == b"2"
    assert talk.say(p.Pubrec(following.packet_id, 0x80)) == []
    assert talk.deliver(Message("t", b"3"), 2)[1] != []


@pytest.mark.parametrize("version", [4, 5])
def test_pubrec_of_an_exchange_that_is_over_is_answered_without_an_error(version):
    assert talk_of(version).say(p.Pubrec(5)) == [p.Pubrel(5)]


@pytest.mark.parametrize(("qos", "answer"), [(1, p.Pubrec(1)), (2, p.Puback(1)), (2, p.Pubcomp(1))])
def test_an_answer_of_another_qos_is_an_error(qos, answer):
    talk = talk_of()
    talk.deliver(Message("t", b""), qos)
    (said,) = talk.say(answer)
    assert said.reason == Reason.PROTOCOL_ERROR


def test_of_a_session_that_lasts_identifiers_of_qos_2_are_durable_first():
    talk = talk_of(expiry=100)
    assert talk.deliver(Message("t", b"x"), 2, offset=7) == (Offer.TAKEN, [])
    (want,) = talk.wants
    assert isinstance(want, WantReserve)
    assert [(each.packet_id, each.delivery.outgoing.offset) for each in want.entries] == [(1, 7)]
    talk.machine.reserved([1], talk.now_ms)
    assert talk.heard() == [p.Publish("t", b"x", 2, 1)]
    assert talk.say(p.Pubrec(1)) == []
    assert talk.wants == [WantKeepReceived((1,))]
    talk.machine.kept_received([1])
    assert talk.heard() == [p.Pubrel(1)]
    assert talk.say(p.Pubcomp(1)) == []
    assert talk.machine.outbound.in_flight == []


def test_a_new_connection_goes_on_with_the_same_identifiers_in_the_old_order():
    talk = Talk()
    first, second = talk.delivery(1, payload=b"1"), talk.delivery(2, payload=b"2")
    before = [
        InFlight(9, first, Stage.SENT),
        InFlight(2, None, Stage.RELEASED),
        InFlight(5, second, Stage.SENT),
    ]
    heard = talk.connect(Opened(True, in_flight=before), properties=pr.ConnectProperties(session_expiry_s=9))
    assert heard[1:] == [
        p.Pubrel(2),
        p.Publish("t", b"1", 1, 9, dup=True),
        p.Publish("t", b"2", 2, 5, dup=True),
    ]
    ids = [talk.deliver(Message("t", b""), 1)[1][0].packet_id for _ in range(3)]
    assert not {2, 5, 9} & set(ids)


def test_what_is_sent_again_keeps_to_a_smaller_window():
    talk = Talk()
    before = [InFlight(number, talk.delivery(1), Stage.SENT) for number in (1, 2, 3)]
    heard = talk.connect(Opened(True, in_flight=before), properties=pr.ConnectProperties(receive_maximum=2))
    assert [each.packet_id for each in heard[1:]] == [1, 2]
    assert [each.packet_id for each in talk.say(p.Puback(1))] == [3]


def test_what_finds_no_room_is_left_in_the_log():
    talk = talk_of(limits=MqttLimits(max_inflight=1, max_queued=2))
    offers = [talk.deliver(Message("t", b""), 1)[0] for _ in range(4)]
    assert offers == [Offer.TAKEN, Offer.TAKEN, Offer.TAKEN, Offer.FULL]
    talk = talk_of(limits=MqttLimits(max_inflight=1, max_queued_bytes=10))
    offers = [talk.deliver(Message("t", b"x" * 9), 1)[0] for _ in range(3)]
    assert offers == [Offer.TAKEN, Offer.TAKEN, Offer.FULL]


def test_expired_messages_are_not_sent_and_others_say_what_is_left():
    talk = talk_of(receive_maximum=1)
    assert talk.deliver(Message("t", b"", expires_ms=talk.now_ms), 1)[0] is Offer.DROPPED
    (sent,) = talk.deliver(Message("t", b"", expires_ms=talk.now_ms + 5_000), 1)[1]
    assert sent.properties.message_expiry_s == 5
    talk.deliver(Message("t", b"late", expires_ms=talk.now_ms + 1_000), 1)
    talk.deliver(Message("t", b"next"), 1)
    talk.now_ms += 2_000
    (following,) = talk.say(p.Puback(1))
    assert following.payload == b"next"


def test_a_packet_beyond_the_clients_maximum_counts_as_delivered():
    talk = talk_of(maximum_packet_size=50)
    assert talk.deliver(Message("t", b"x" * 60), 1) == (Offer.DROPPED, [])
    assert talk.deliver(Message("t", b"x"), 1)[0] is Offer.TAKEN


def test_topics_get_aliases_where_the_client_allows_them():
    talk = talk_of(topic_alias_maximum=1)
    first, again = (talk.deliver(Message("t", b""), qos)[1][0] for qos in (0, 1))
    other = talk.deliver(Message("u", b""), 0)[1][0]
    assert (first.topic, first.properties.topic_alias) == ("t", 1)
    assert (again.topic, again.properties.topic_alias) == ("", 1)
    assert (other.topic, other.properties.topic_alias) == ("u", None)


def test_properties_and_identifiers_reach_clients_of_5_only():
    message = Message("t", b"", properties=pr.PublishProperties((("a", "b"),), content_type="x"))
    (sent,) = talk_of(5).deliver(message, 0, identifiers=(3, 1))[1]
    assert sent.properties == pr.PublishProperties(
        (("a", "b"),), content_type="x", subscription_identifiers=(3, 1)
    )
    assert talk_of(4).deliver(message, 0, identifiers=(3,))[1] == [p.Publish("t", b"")]


def test_a_subscriber_that_does_not_read_loses_qos_0_or_its_connection():
    talk = talk_of()
    talk.machine.outbound.is_blocked = True
    assert talk.deliver(Message("t", b""), 0) == (Offer.DROPPED, [])
    assert talk.machine.outbound.dropped == 1
    talk = talk_of(limits=MqttLimits(slow_subscribers=SlowSubscribers.DISCONNECT))
    talk.machine.outbound.is_blocked = True
    (said,) = talk.deliver(Message("t", b""), 0)[1]
    assert said.reason == Reason.QUOTA_EXCEEDED
    assert talk.machine.state is State.CLOSED


def test_filters_are_asked_for_and_broken_ones_are_answered_with_their_reason():
    talk = talk_of()
    packet = p.Subscribe(
        3,
        (
            p.Filter("a/+", 1, True, True, p.RetainHandling.NEVER),
            p.Filter("a#"),
            p.Filter("$share/g/a#"),
        ),
        pr.SubscribeProperties(subscription_identifiers=(8,)),
    )
    assert talk.say(packet) == []
    (want,) = talk.wants
    kept = Subscription("a/+", 1, True, True, p.RetainHandling.NEVER, 8)
    assert want == WantSubscribe(3, (kept, 0x8F, 0x8F))
    talk.machine.subscribed(3, [1, 0x8F, 0x8F], 0)
    assert talk.heard() == [p.Suback(3, (1, 0x8F, 0x8F))]
    talk.say(p.Unsubscribe(4, ("a/+",)))
    assert talk.wants == [WantUnsubscribe(4, ("a/+",))]
    talk.machine.unsubscribed(4, [0], 0)
    assert talk.heard() == [p.Unsuback(4, (0,))]


def test_what_follows_a_change_of_filters_waits_for_it():
    talk = talk_of()
    assert (
        talk.say(p.Subscribe(3, (p.Filter("a"),)), p.Publish("a", b""), p.Unsubscribe(4, ("a",)), p.Pingreq())
        == []
    )
    assert len(talk.wants) == 1
    assert talk.machine.holds
    talk.machine.subscribed(3, [0], 0)
    assert talk.heard() == [p.Suback(3, (0,))]
    assert [type(want).__name__ for want in talk.wants] == ["WantSend", "WantUnsubscribe"]
    talk.machine.unsubscribed(4, [0], 0)
    assert talk.heard() == [p.Unsuback(4, (0,)), p.Pingresp()]
    assert not talk.machine.holds


def test_ping():
    assert talk_of().say(p.Pingreq()) == [p.Pingresp()]
