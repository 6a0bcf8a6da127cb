"""What breaks the protocol is refused with its reason, and nothing behind it is read."""

import random

import pytest

from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import Connect, Pingreq, Publish
from millstream.protocol.mqtt.properties import MOST_USER_PROPERTIES, PublishProperties
from millstream.protocol.mqtt.reasons import Reason, Violation

MALFORMED, PROTOCOL = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
BAD_ID = Reason.CLIENT_IDENTIFIER_NOT_VALID
CONNECT_31 = "0006 4d5149736470 03"
CONNECT_3 = "0004 4d515454 04"
CONNECT_5 = "0004 4d515454 05"


def packet(head, body):
    data = bytes.fromhex(body)
    assert len(data) < 128
    return bytes((head, len(data))) + data


CONNECTS = [
    ("not MQTT", packet(0x10, "0004 4d515455 04 02 0000 0001 61"), MALFORMED),
    ("an older level", packet(0x10, "0004 4d515454 03 02 0000 0001 61"), Reason.UNSUPPORTED_PROTOCOL_VERSION),
    ("3.1 without an id", packet(0x10, CONNECT_31 + "02 0000 0000"), BAD_ID),
    ("3.1 with another level", packet(0x10, "0006 4d5149736470 04 02 0000"), Reason.UNSUPPORTED_PROTOCOL_VERSION),
    ("a control character in the id", packet(0x10, CONNECT_5 + "02 0000 00 0001 01"), BAD_ID),
    ("a surrogate in the id", packet(0x10, CONNECT_5 + "02 0000 00 0003 eda080"), BAD_ID),
    ("a surrogate in the id in 3.1.1", packet(0x10, CONNECT_3 + "02 0000 0003 eda080"), MALFORMED),
    ("reserved flag", packet(0x10, CONNECT_3 + "03 0000 0001 61"), MALFORMED),
    ("will QoS without a will", packet(0x10, CONNECT_3 + "0a 0000 0001 61"), MALFORMED),
    ("will retain without a will", packet(0x10, CONNECT_3 + "22 0000 0001 61"), MALFORMED),
    ("will QoS 3", packet(0x10, CONNECT_3 + "1e 0000 0001 61 0001 74 0000"), MALFORMED),
    ("will to a wildcard", packet(0x10, CONNECT_3 + "06 0000 0001 61 0001 23 0000"), MALFORMED),
    ("password alone in 3.1.1", packet(0x10, CONNECT_3 + "42 0000 0001 61 0001 62"), MALFORMED),
    ("something behind", packet(0x10, CONNECT_3 + "02 0000 0001 61 00"), MALFORMED),
    ("cut short", packet(0x10, CONNECT_3 + "02 0000 0005 61"), MALFORMED),
    ("flags of the header", packet(0x11, CONNECT_3 + "02 0000 0001 61"), MALFORMED),
    ("receive maximum 0", packet(0x10, CONNECT_5 + "02 0000 03 210000 0001 61"), PROTOCOL),
    ("packet size 0", packet(0x10, CONNECT_5 + "02 0000 05 2700000000 0001 61"), PROTOCOL),
    ("a property twice", packet(0x10, CONNECT_5 + "02 0000 06 210001 210001 0001 61"), PROTOCOL),
    ("a property of another packet", packet(0x10, CONNECT_5 + "02 0000 02 2401 0001 61"), PROTOCOL),
    ("problem information 2", packet(0x10, CONNECT_5 + "02 0000 02 1702 0001 61"), PROTOCOL),
    ("authentication data alone", packet(0x10, CONNECT_5 + "02 0000 04 16 0001 61 0001 61"), PROTOCOL),
    ("PINGREQ first", packet(0xC0, ""), PROTOCOL),
    ("PUBLISH first", packet(0x30, "0001 61"), PROTOCOL),
]  # fmt: skip

LATER = [
    (4, "a second CONNECT", packet(0x10, CONNECT_3 + "02 0000 0001 61"), PROTOCOL),
    (4, "type 0", packet(0x00, ""), PROTOCOL),
    (4, "AUTH in 3.1.1", packet(0xF0, ""), MALFORMED),
    (4, "CONNACK from a client", packet(0x20, "0000"), PROTOCOL),
    (4, "SUBACK from a client", packet(0x90, "0001 00"), PROTOCOL),
    (5, "SUBACK with flags from a client", packet(0x91, "0001 00 00"), MALFORMED),
    (5, "PINGRESP with flags from a client", packet(0xD8, ""), MALFORMED),
    (5, "type 0 before it is whole", bytes.fromhex("0ac0"), PROTOCOL),
    (5, "type 0 with a length that does not end", bytes.fromhex("00ffffffff01"), PROTOCOL),
    (4, "PINGREQ with a body", packet(0xC0, "00"), MALFORMED),
    (4, "PINGREQ with flags", packet(0xC1, ""), MALFORMED),
    (4, "DISCONNECT with a body in 3.1.1", packet(0xE0, "00"), MALFORMED),
    (4, "QoS 3", packet(0x36, "0001 61 0001"), MALFORMED),
    (4, "DUP of QoS 0", packet(0x38, "0001 61"), MALFORMED),
    (4, "packet id 0", packet(0x32, "0001 61 0000"), PROTOCOL),
    (4, "no topic", packet(0x30, "0000"), MALFORMED),
    (5, "no topic and no alias", packet(0x30, "0000 00"), MALFORMED),
    (5, "topic alias 0", packet(0x30, "0001 61 03 230000"), Reason.TOPIC_ALIAS_INVALID),
    (4, "a wildcard in the topic", packet(0x30, "0003 612f2b"), MALFORMED),
    (4, "U+0000 in the topic", packet(0x30, "0003 610062"), MALFORMED),
    (4, "a control character in the topic", packet(0x30, "0002 6107"), MALFORMED),
    (5, "U+009F in the topic", packet(0x30, "0002 c29f 00"), MALFORMED),
    (4, "a surrogate in the topic", packet(0x30, "0003 eda080"), MALFORMED),
    (4, "an overlong form", packet(0x30, "0002 c080"), MALFORMED),
    (4, "a topic longer than the packet", packet(0x30, "0009 61"), MALFORMED),
    (4, "no room for the packet id", packet(0x32, "0001 61 00"), MALFORMED),
    (5, "no property length", packet(0x30, "0001 61"), MALFORMED),
    (5, "properties longer than the packet", packet(0x30, "0001 61 05 01"), MALFORMED),
    (5, "an unknown property", packet(0x30, "0001 61 02 7f00"), MALFORMED),
    (5, "payload format 2", packet(0x30, "0001 61 02 0102"), PROTOCOL),
    (5, "a subscription identifier from a client", packet(0x30, "0001 61 02 0b01"), PROTOCOL),
    (5, "a wildcard in the response topic", packet(0x30, "0001 61 04 08000123"), PROTOCOL),
    (5, "expiry twice", packet(0x30, "0001 61 0a 0200000001 0200000001"), PROTOCOL),
    (4, "SUBSCRIBE without flags", packet(0x80, "0001 0001 61 00"), MALFORMED),
    (4, "SUBSCRIBE without filters", packet(0x82, "0001"), MALFORMED),
    (4, "an empty filter", packet(0x82, "0001 0000 00"), MALFORMED),
    (5, "an empty filter behind another", packet(0x82, "0001 00 0001 61 00 0000 00"), MALFORMED),
    (5, "a group with +", packet(0x82, "0001 00 000a 2473686172652f2b2f61 00"), PROTOCOL),
    (5, "a group with #", packet(0x82, "0001 00 000a 2473686172652f232f61 00"), MALFORMED),
    (5, "a group without a filter", packet(0x82, "0001 00 0008 2473686172652f67 00"), PROTOCOL),
    (5, "a property of another packet in SUBSCRIBE", packet(0x82, "0001 02 2401 0001 61 00"), MALFORMED),
    (5, "a property of another packet in PUBLISH", packet(0x30, "0001 61 02 2401"), PROTOCOL),
    (4, "SUBSCRIBE without an id", packet(0x82, "0000 0001 61 00"), MALFORMED),
    (4, "a filter of QoS 3", packet(0x82, "0001 0001 61 03"), MALFORMED),
    (4, "options of 5.0 in 3.1.1", packet(0x82, "0001 0001 61 04"), MALFORMED),
    (5, "reserved options", packet(0x82, "0001 00 0001 61 40"), MALFORMED),
    (5, "retain handling 3", packet(0x82, "0001 00 0001 61 30"), MALFORMED),
    (5, "no local and shared", packet(0x82, "0001 00 000a 2473686172652f672f61 04"), PROTOCOL),
    (5, "subscription identifier 0", packet(0x82, "0001 02 0b00 0001 61 00"), MALFORMED),
    (5, "two subscription identifiers", packet(0x82, "0001 04 0b01 0b02 0001 61 00"), PROTOCOL),
    (5, "a filter without options", packet(0x82, "0001 00 0001 61"), MALFORMED),
    (4, "UNSUBSCRIBE of an empty filter", packet(0xA2, "0001 0000"), MALFORMED),
    (4, "UNSUBSCRIBE without filters", packet(0xA2, "0001"), MALFORMED),
    (4, "PUBREL without flags", packet(0x60, "0001"), MALFORMED),
    (4, "PUBACK with a reason in 3.1.1", packet(0x40, "0001 00"), MALFORMED),
    (4, "PUBACK of id 0", packet(0x40, "0000"), PROTOCOL),
    (5, "PUBACK with a reason of others", packet(0x40, "0001 8e"), PROTOCOL),
    (5, "PUBREL with a reason of others", packet(0x62, "0001 80"), PROTOCOL),
    (5, "DISCONNECT with a server's reason", packet(0xE0, "8e"), PROTOCOL),
    (5, "DISCONNECT with a server's reference", packet(0xE0, "00 04 1c 0001 61"), PROTOCOL),
    (5, "AUTH with flags of a client without a method", packet(0xF1, ""), PROTOCOL),
    (5, "CONNACK with a length that does not end", bytes.fromhex("2080808080 01"), MALFORMED),
    (5, "AUTH with an unknown reason", packet(0xF0, "01 00"), PROTOCOL),
    (4, "a length longer than it need be", bytes.fromhex("c08000"), MALFORMED),
    (4, "a length that does not end", bytes.fromhex("3080808080 01"), MALFORMED),
    (5, "a property length longer than it need be", packet(0x30, "0001 61 8000"), MALFORMED),
]


@pytest.mark.parametrize(("data", "reason"), [row[1:] for row in CONNECTS], ids=[row[0] for row in CONNECTS])
def test_a_broken_start_is_refused(data, reason):
    check_refused(Decoder(), data, reason)


@pytest.mark.parametrize(
    ("version", "data", "reason"), [(row[0], *row[2:]) for row in LATER], ids=[row[1] for row in LATER]
)
def test_a_broken_packet_is_refused(version, data, reason):
    check_refused(Decoder(version=version), data, reason)


def check_refused(decoder, data, reason):
    *before, last = decoder.feed(data + encode(Pingreq(), 4))
    assert before == []
    assert isinstance(last, Violation)
    assert last.reason is reason
    assert decoder.feed(encode(Pingreq(), 4)) == []


# Of each packet with properties, what stands before and behind them; who reads it.
WITH_PROPERTIES = {
    "CONNECT": (0x10, CONNECT_5 + "02 0000", "0001 61", Side.SERVER),
    "a will": (0x10, CONNECT_5 + "06 0000 00 0001 61", "0001 74 0000", Side.SERVER),
    "CONNACK": (0x20, "0000", "", Side.CLIENT),
    "PUBLISH": (0x32, "0001 61 0001", "78", Side.SERVER),
    "PUBACK": (0x40, "0001 00", "", Side.SERVER),
    "PUBREC": (0x50, "0001 00", "", Side.SERVER),
    "PUBREL": (0x62, "0001 00", "", Side.SERVER),
    "PUBCOMP": (0x70, "0001 00", "", Side.SERVER),
    "SUBSCRIBE": (0x82, "0001", "0001 61 00", Side.SERVER),
    "SUBACK": (0x90, "0001", "00", Side.CLIENT),
    "UNSUBSCRIBE": (0xA2, "0001", "0001 61", Side.SERVER),
    "UNSUBACK": (0xB0, "0001", "00", Side.CLIENT),
    "DISCONNECT": (0xE0, "00", "", Side.SERVER),
    "AUTH": (0xF0, "18", "", Side.SERVER),
}
NO_VALUE, NO_KEY, KEY_CUT, VALUE_CUT = "26 0001 70", "26", "26 0009 70", "26 0001 70 0009 71"
# No packet may have all of them.
NOT_ALLOWED = "13 0001 1a 0000 0b 01 24 01"


@pytest.mark.parametrize("name", WITH_PROPERTIES)
def test_a_cut_user_property_is_malformed_in_every_packet(name):
    head, before, behind, side = WITH_PROPERTIES[name]

    def read(properties):
        size = f"{len(bytes.fromhex(properties)):02x}"
        version = 0 if head == 0x10 else 5
        return Decoder(side=side, version=version).feed(packet(head, before + size + properties + behind))

    (whole,) = read("26 0001 70 0001 71")
    assert not isinstance(whole, Violation)
    for cut in (NO_VALUE, NO_KEY, KEY_CUT, VALUE_CUT):
        (refused,) = read(cut)
        assert refused.reason is MALFORMED
    (refused,) = read(NOT_ALLOWED)
    assert refused.reason is (MALFORMED if "SUBSCRIBE" in name else PROTOCOL)
    for unreadable in (NO_VALUE, "70"):
        (refused,) = read(NOT_ALLOWED + unreadable)
        assert refused.reason is MALFORMED


def test_not_all_of_a_large_packet_is_read_once_it_is_wrong():
    topic_aliases = bytes.fromhex("230001") * 2_000
    body = bytes.fromhex("0001 00 f12e") + topic_aliases + b"\x70"
    (refused,) = Decoder(version=5).feed(bytes.fromhex("40f62e") + body)
    assert refused.reason is PROTOCOL


def test_what_came_before_the_violation_is_read():
    good = encode(Publish("a", b""), 4)
    first, last = Decoder(version=4).feed(good + packet(0x00, ""))
    assert first == Publish("a", b"")
    assert isinstance(last, Violation)


def test_a_packet_beyond_the_limit_is_refused_before_it_has_come():
    (refused,) = Decoder(1000, version=5).feed(bytes.fromhex("30ffff7f"))
    assert refused.reason is Reason.PACKET_TOO_LARGE


def test_a_packet_of_just_the_limit_is_taken():
    data = encode(Publish("a", b"x" * 1000), 4)
    assert len(Decoder(len(data), version=4).feed(data)) == 1
    (refused,) = Decoder(len(data) - 1, version=4).feed(data)
    assert refused.reason is Reason.PACKET_TOO_LARGE


def test_mqtt_3_1_is_read_as_3_1_1():
    (read,) = Decoder().feed(packet(0x14, CONNECT_31 + "03 000a 0001 61"))
    assert read == Connect("a", 4, keep_alive_s=10, is_3_1=True)


def test_a_byte_order_mark_is_a_character():
    (read,) = Decoder(version=4).feed(packet(0x30, "0004 efbbbf61"))
    assert read.topic == "\ufeffa"


def test_topics_of_many_levels_and_too_many_user_properties_are_refused():
    (refused,) = Decoder(version=4).feed(encode(Publish("/" * 65_535, b""), 4))
    assert refused.reason is Reason.TOPIC_NAME_INVALID
    many = PublishProperties(user_properties=(("", ""),) * (MOST_USER_PROPERTIES + 1))
    (refused,) = Decoder(version=5).feed(encode(Publish("a", b"", properties=many), 5))
    assert refused.reason is Reason.QUOTA_EXCEEDED


def test_the_longest_topic_is_taken():
    (read,) = Decoder(version=5).feed(encode(Publish("a" * 65_535, b"x"), 5))
    assert len(read.topic) == 65_535


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("version", [4, 5])
def test_broken_bytes_never_do_more_than_break_the_connection(side, version):
    chance = random.Random(7)
    seeds = [row[2] for row in LATER] + [encode(Connect("x", version), version)]
    for _ in range(3000):
        data = bytearray(chance.choice(seeds) * chance.randint(1, 3))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        decoder = Decoder(1000, side=side, version=chance.choice((0, version)))
        found = decoder.feed(bytes(data))
        assert not any(isinstance(each, Violation) for each in found[:-1])
        assert decoder.pending_bytes <= 1000
