"""Bytes written down from the specifications, and those of another implementation."""

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from millstream.protocol.mqtt import packets as p
from millstream.protocol.mqtt import properties as pr
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode, puback, publish_frame

HOUR = pr.PublishProperties(message_expiry_s=3600)
CLIENTS = [
    (4, "101000044d5154540402003c0004746573 74", p.Connect("test", 4, True, 60)),
    (
        5,
        "10 19 0004 4d515454 05 c2 0000 05 11 0000000a 0001 61 0001 75 0001 70",
        p.Connect("a", 5, True, 0, "u", b"p", None, pr.ConnectProperties(session_expiry_s=10)),
    ),
    (4, "320a 0003 612f62 0010 686579", p.Publish("a/b", b"hey", 1, 16)),
    (5, "3b0b 0003 612f62 0010 00 686579", p.Publish("a/b", b"hey", 1, 16, True, True)),
    (5, "300b 0001 74 05 02 00000e10 686a", p.Publish("t", b"hj", properties=HOUR)),
    (4, "40 02 ffff", p.Puback(65535)),
    (5, "50 03 0001 97", p.Pubrec(1, 0x97)),
    (4, "62 02 0001", p.Pubrel(1)),
    (5, "70 04 0001 92 00", p.Pubcomp(1, 0x92)),
    (4, "82 08 0001 0003 612f2b 01", p.Subscribe(1, (p.Filter("a/+", 1),))),
    (
        5,
        "82 0b 0001 02 0b7f 0003 612f23 2e",
        p.Subscribe(
            1,
            (p.Filter("a/#", 2, True, True, p.RetainHandling.NEVER),),
            pr.SubscribeProperties(subscription_identifiers=(127,)),
        ),
    ),
    (4, "a2 05 0001 0001 61", p.Unsubscribe(1, ("a",))),
    (4, "c000", p.Pingreq()),
    (4, "e000", p.Disconnect()),
    (5, "e0 07 04 05 11 00000000", p.Disconnect(4, pr.DisconnectProperties(session_expiry_s=0))),
    (5, "f0 06 18 04 15 0001 78", p.Auth(0x18, pr.AuthProperties(authentication_method="x"))),
]  # fmt: skip


@pytest.mark.parametrize(("version", "text", "packet"), CLIENTS)
def test_bytes_of_the_specification_are_read(version, text, packet):
    decoder = Decoder(version=0 if isinstance(packet, p.Connect) else version)
    assert decoder.feed(bytes.fromhex(text)) == [packet]


# 0x92 with an empty list of properties may be written shorter.
@pytest.mark.parametrize(
    ("version", "text", "packet"), [row for row in CLIENTS if not isinstance(row[2], p.Pubcomp)]
)
def test_packets_are_written_as_the_specification_says(version, text, packet):
    assert encode(packet, version) == bytes.fromhex(text)


@pytest.mark.parametrize(
    ("version", "text", "packet"),
    [
        (4, "20 02 01 00", p.Connack(0, True)),
        (4, "20 02 00 04", p.Connack(0x86)),
        (4, "20 02 00 03", p.Connack(0x88)),
        (5, "20 06 00 00 03 21 0014", p.Connack(properties=pr.ConnackProperties(receive_maximum=20))),
        (4, "90 04 0001 02 80", p.Suback(1, (2, 0x8F))),
        (5, "90 05 0001 00 02 8f", p.Suback(1, (2, 0x8F))),
        (4, "b0 02 0001", p.Unsuback(1, (0,))),
        (5, "b0 04 0001 00 11", p.Unsuback(1, (0x11,))),
        (5, "e0 01 8e", p.Disconnect(0x8E)),
        (4, "d0 00", p.Pingresp()),
    ],
)
def test_what_a_server_says(version, text, packet):
    assert encode(packet, version) == bytes.fromhex(text)


def test_an_acknowledgement_and_a_frame_for_many_are_the_same_packets():
    assert puback(258) == encode(p.Puback(258), 5) == bytes.fromhex("40020102")
    for version in (4, 5):
        frame = publish_frame("a/b", b"x" * 300, 2, True, version)
        assert frame.with_id(7, dup=True) == encode(p.Publish("a/b", b"x" * 300, 2, 7, True, True), version)
        assert frame.size_bytes == len(frame.with_id(7))


def test_properties_are_those_of_paho():
    theirs = PahoProperties(PacketTypes.PUBLISH)
    theirs.PayloadFormatIndicator = 1
    theirs.MessageExpiryInterval = 77
    theirs.ContentType = "text/plain"
    theirs.ResponseTopic = "answers/here"
    theirs.CorrelationData = b"\x00\xff"
    theirs.SubscriptionIdentifier = 268_435_455
    theirs.UserProperty = [("a", "1"), ("a", "2"), ("ü", "")]
    ours = pr.PublishProperties(
        (("a", "1"), ("a", "2"), ("ü", "")), 1, 77, "text/plain", "answers/here", b"\x00\xff", (268_435_455,)
    )
    packed = theirs.pack()
    assert pr.read_properties(pr.PublishProperties, packed, 0, len(packed)) == (ours, len(packed))
    assert len(pr.write_properties(ours)) == len(packed)
    read_back = PahoProperties(PacketTypes.PUBLISH)
    read_back.unpack(pr.write_properties(ours))
    assert read_back.json() == theirs.json()


def test_a_clients_decoder_reads_what_the_server_writes():
    decoder = Decoder(side=Side.CLIENT, version=5)
    assert decoder.feed(encode(p.Suback(1, (0x87,)), 5)) == [p.Suback(1, (0x87,))]
