"""From CONNECT to the end of a connection: who is let in, what each is told, when a will is due."""

import pytest

from millstream.mqtt.connection import Opened, State
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.wants import WantAuthentication, WantClose, WantOpen, WantSend
from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr
from millstream.protocol.mqtt.reasons import Reason
from support.mqtt_talk import Talk

WILL = p.Will("gone", b"bye")


def closed(talk):
    (want,) = talk.wants
    assert isinstance(want, WantClose)
    assert talk.machine.state is State.CLOSED
    return want


@pytest.mark.parametrize("version", [4, 5])
def test_connack_comes_when_the_session_is_open(version):
    talk = Talk(version)
    assert talk.say(p.Connect("c1", version)) == []
    assert talk.wants == [WantOpen(p.Connect("c1", version), "c1")]
    talk.machine.opened(Opened(present=True), 0)
    (connack,) = talk.heard()
    assert (connack.reason, connack.session_present) == (0, True)


def test_a_client_of_5_without_an_id_is_given_one_and_keeps_it_for_its_expiry():
    (connack,) = (talk := Talk()).connect(client_id="", properties=pr.ConnectProperties(session_expiry_s=9))
    assert connack.properties.assigned_client_identifier == "made-up"
    assert talk.machine.session_expiry_s == 9


def test_a_client_of_3_without_an_id_needs_a_clean_session():
    assert Talk(4).connect(client_id="")[0].reason == 0
    talk = Talk(4)
    assert talk.say(p.Connect("", 4, clean_start=False)) == [p.Connack(2)]
    assert closed(talk).reason is Reason.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize(
    ("version", "clean", "asked", "kept"),
    [
        (4, True, None, 0),
        (4, False, None, 100),
        (5, True, None, 0),
        (5, False, 7, 7),
        (5, True, 0xFFFFFFFF, 100),
    ],
)
def test_sessions_expire_as_asked_and_never_later_than_the_server_keeps_them(version, clean, asked, kept):
    talk = Talk(version, MqttLimits(max_session_expiry_s=100))
    properties = pr.ConnectProperties(session_expiry_s=asked) if version == 5 else pr.ConnectProperties()
    (connack,) = talk.connect(clean_start=clean, properties=properties)
    assert talk.machine.session_expiry_s == kept
    if version == 5:
        assert connack.properties.session_expiry_s == (kept if kept != (asked or 0) else None)


@pytest.mark.parametrize(("asked", "told", "used"), [(0, 60, 60), (30, None, 30), (300, 60, 60)])
def test_the_servers_keep_alive_wins(asked, told, used):
    talk = Talk(5, MqttLimits(server_keep_alive_s=60))
    (connack,) = talk.connect(keep_alive_s=asked)
    assert connack.properties.server_keep_alive_s == told
    assert talk.machine.keep_alive_s == used


def test_packets_that_come_before_connack_wait_for_the_session():
    talk = Talk()
    talk.say(p.Connect("c1"), p.Publish("a", b"1", 1, 5), p.Pingreq())
    assert talk.machine.holds
    assert len(talk.wants) == 1
    talk.machine.opened(Opened(), 0)
    assert isinstance(talk.heard()[0], p.Connack)
    assert isinstance(talk.wants[0], WantSend)
    assert not talk.machine.holds


@pytest.mark.parametrize("version", [4, 5])
def test_who_is_refused_is_told_in_connack(version):
    talk = Talk(version)
    talk.say(p.Connect("c1", version, will=WILL))
    talk.machine.refuse(Reason.BAD_USER_NAME_OR_PASSWORD, "no")
    (connack,) = talk.heard()
    assert connack.reason == (0x86 if version == 5 else 4)
    assert not closed(talk).send_will


def test_an_unknown_version_is_refused():
    talk = Talk()
    talk.machine.receive(bytes.fromhex("100d 0004 4d515454 07 02 0000 0001 61"), 0)
    (connack,) = talk.heard()
    assert connack.reason == Reason.UNSUPPORTED_PROTOCOL_VERSION
    assert closed(talk).reason is Reason.UNSUPPORTED_PROTOCOL_VERSION


def test_an_explanation_that_makes_a_packet_too_large_is_left_out():
    small = pr.ConnectProperties(maximum_packet_size=30)
    reason, text = Reason.BAD_AUTHENTICATION_METHOD, "there is no such way to show who one is"
    talk = Talk()
    talk.say(p.Connect("c", properties=small))
    talk.machine.refuse(reason, text)
    assert talk.heard() == [p.Connack(reason)]
    talk = Talk()
    talk.connect(properties=small)
    talk.say(p.Publish("a", b"", 1, 1), p.Publish("a", b"", 1, 2))
    talk.machine.sent(1, Reason.QUOTA_EXCEEDED, text)
    talk.machine.sent(2, Reason.QUOTA_EXCEEDED, "short")
    full, shown = talk.heard()
    assert full == p.Puback(1, Reason.QUOTA_EXCEEDED)
    assert shown.properties.reason_string == "short"
    talk.machine.close(Reason.NOT_AUTHORIZED, text)
    assert talk.heard() == [p.Disconnect(Reason.NOT_AUTHORIZED)]


def test_reasons_are_given_without_words_where_that_is_set():
    talk = Talk(5, MqttLimits(explains=False))
    talk.connect()
    talk.machine.close(Reason.SERVER_BUSY, "why")
    assert talk.heard() == [p.Disconnect(Reason.SERVER_BUSY)]
    talk = Talk(5, MqttLimits(explains=False))
    talk.say(p.Connect("c1"))
    talk.machine.refuse(Reason.SERVER_BUSY, "why")
    assert talk.heard() == [p.Connack(Reason.SERVER_BUSY)]


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("3080808080 01"),
        bytes.fromhex("2080808080 01"),
        bytes.fromhex("c001 00"),
        bytes.fromhex("d001 00"),
        bytes.fromhex("e001 8e"),
        bytes.fromhex("e001 05"),
        bytes.fromhex("e006 00 04 1c 0001 61"),
    ],
    ids=["length", "length of CONNACK", "PINGREQ", "PINGRESP", "server's reason", "reason", "reference"],
)
def test_who_has_left_or_whose_packets_cannot_be_told_apart_is_not_answered_and_its_will_is_sent(data):
    talk = Talk()
    talk.connect(will=WILL)
    talk.machine.receive(data, talk.now_ms)
    assert talk.heard() == []
    assert closed(talk).send_will


def test_mqtt_3_1_is_served_to_who_has_an_id():
    talk = Talk(4)
    talk.machine.receive(bytes.fromhex("100f 0006 4d5149736470 03 02 0000 0001 61"), 0)
    talk.machine.opened(Opened(present=True), 0)
    assert talk.heard() == [p.Connack()]
    talk = Talk(4)
    talk.machine.receive(bytes.fromhex("100e 0006 4d5149736470 03 02 0000 0000"), 0)
    assert talk.heard() == [p.Connack(2)]
    assert closed(talk).reason is Reason.CLIENT_IDENTIFIER_NOT_VALID


def test_a_broken_connect_of_5_is_answered_with_its_reason():
    talk = Talk()
    talk.machine.receive(bytes.fromhex("1011 0004 4d515454 05 02 0000 03 210000 0001 61"), 0)
    (connack,) = talk.heard()
    assert connack.reason == Reason.PROTOCOL_ERROR
    assert not closed(talk).send_will


def test_who_takes_no_packet_as_large_as_connack_gets_none():
    talk = Talk()
    assert talk.connect(properties=pr.ConnectProperties(maximum_packet_size=5)) == []
    closed(talk)


def test_what_is_no_mqtt_is_closed_without_a_word():
    talk = Talk()
    talk.machine.receive(b"GET / HTTP/1.1\r\n\r\n", 0)
    assert talk.heard() == []
    closed(talk)


@pytest.mark.parametrize(
    ("version", "reason", "sent"), [(4, 0, False), (5, 0, False), (5, 4, True), (5, 0x98, True)]
)
def test_disconnect_deletes_the_will_or_sends_it(version, reason, sent):
    talk = Talk(version)
    talk.connect(will=WILL)
    assert talk.say(p.Disconnect(reason)) == []
    assert closed(talk).send_will is sent


def test_the_will_of_a_lost_or_broken_connection_is_sent():
    for break_it in ("lost", "keep_alive_over"):
        talk = Talk(4)
        talk.connect(will=WILL)
        getattr(talk.machine, break_it)()
        assert talk.heard() == [], "3.1.1 is never sent DISCONNECT"
        assert closed(talk).send_will
    talk = Talk(5)
    talk.connect(will=WILL)
    (said,) = talk.say(p.Connect("again"))
    assert said.reason == Reason.PROTOCOL_ERROR
    assert closed(talk).send_will


def test_the_expiry_may_change_with_disconnect_but_not_from_0():
    talk = Talk()
    talk.connect(properties=pr.ConnectProperties(session_expiry_s=5))
    talk.say(p.Disconnect(0, pr.DisconnectProperties(session_expiry_s=50)))
    assert closed(talk).session_expiry_s == 50
    talk = Talk()
    talk.connect()
    (said,) = talk.say(p.Disconnect(0, pr.DisconnectProperties(session_expiry_s=50)))
    assert said.reason == Reason.PROTOCOL_ERROR
    assert closed(talk).session_expiry_s == 0


def test_who_is_taken_over_is_told():
    talk = Talk()
    talk.connect()
    talk.machine.close(Reason.SESSION_TAKEN_OVER, "another client has this id")
    (said,) = talk.heard()
    assert said.reason == Reason.SESSION_TAKEN_OVER
    talk.machine.close(Reason.SERVER_SHUTTING_DOWN)
    assert talk.heard() == []


def test_an_exchange_of_auth_comes_before_connack_and_again_later():
    scram = pr.ConnectProperties(authentication_method="SCRAM", authentication_data=b"1")
    talk = Talk()
    talk.say(p.Connect("c1", properties=scram))
    talk.machine.challenge(b"2", 0)
    (asked,) = talk.heard()
    assert (asked.reason, asked.properties.authentication_data) == (0x18, b"2")
    answer = pr.AuthProperties(authentication_method="SCRAM", authentication_data=b"3")
    talk.say(p.Auth(0x18, answer))
    assert talk.wants == [WantAuthentication("SCRAM", b"3", False)]
    talk.machine.opened(Opened(authentication_data=b"4"), 0)
    (connack,) = talk.heard()
    assert connack.properties.authentication_data == b"4"
    talk.say(p.Auth(0x19, answer))
    assert talk.wants == [WantAuthentication("SCRAM", b"3", True)]
    talk.machine.authenticated(None)
    assert talk.heard() == [p.Auth(0, pr.AuthProperties(authentication_method="SCRAM"))]


@pytest.mark.parametrize(
    "packet",
    [
        p.Auth(0x18, pr.AuthProperties(authentication_method="OTHER")),
        p.Auth(0x19, pr.AuthProperties(authentication_method="SCRAM")),
        p.Publish("a", b""),
    ],
)
def test_what_does_not_belong_into_the_exchange_ends_it(packet):
    talk = Talk()
    talk.say(p.Connect("c1", properties=pr.ConnectProperties(authentication_method="SCRAM")))
    talk.machine.challenge(None, 0)
    talk.heard()
    (said,) = talk.say(packet)
    assert isinstance(said, p.Connack)
    assert said.reason == Reason.PROTOCOL_ERROR
    closed(talk)


def test_auth_without_a_method_in_connect_is_an_error():
    talk = Talk()
    talk.connect()
    (said,) = talk.say(p.Auth(0x19, pr.AuthProperties(authentication_method="x")))
    assert said.reason == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize("end", [b"\xe0\x00", b"\x00\x00"], ids=["DISCONNECT", "rubbish"])
def test_what_ends_it_right_behind_connect_does_not_wait_for_the_session(end):
    talk = Talk()
    talk.say(p.Connect("c1", 5))
    talk.machine.receive(end, talk.now_ms)
    talk.heard()
    assert isinstance(talk.wants[-1], WantClose)
    assert talk.machine.state is State.CLOSED
