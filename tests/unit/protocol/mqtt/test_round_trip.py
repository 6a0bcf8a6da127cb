"""Whatever either version can say comes back as it was, however the stream is cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import V3, V5
from support.mqtt_packets import client_packets, connects, server_packets

VERSIONS = pytest.mark.parametrize("version", [V3, V5])


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


@VERSIONS
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_clients_packets_come_back_however_the_stream_is_cut(version, data):
    sent = [data.draw(connects(version)), *data.draw(st.lists(client_packets(version), max_size=4))]
    stream = b"".join(encode(packet, version) for packet in sent)
    decoder = Decoder()
    found = [
        packet
        for piece in cut(stream, data.draw(st.lists(st.integers(0, 1 << 16), max_size=6)))
        for packet in decoder.feed(piece)
    ]
    assert found == sent
    assert decoder.version == version
    assert decoder.pending_bytes == 0


@VERSIONS
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_servers_packets_come_back(version, data):
    sent = data.draw(st.lists(server_packets(version), max_size=4))
    decoder = Decoder(side=Side.CLIENT, version=version)
    assert decoder.feed(b"".join(encode(packet, version) for packet in sent)) == sent


@VERSIONS
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_byte_by_byte_is_the_same_as_at_once(version, data):
    sent = data.draw(client_packets(version))
    decoder = Decoder(version=version)
    found = [packet for byte in encode(sent, version) for packet in decoder.feed(bytes((byte,)))]
    assert found == [sent]
