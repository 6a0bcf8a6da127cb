"""The binary message frame: what is encoded is decoded, and whatever is not a whole frame is refused."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.protocol.message_frame import FrameError, MessageFrame, decode_frame, encode_frame

FRAME = MessageFrame(
    1_752_871_354_000, b"GPU-5fd4", b'{"value": 85.0}', (("source", b"streamer-1"), ("empty", None))
)

frames = st.builds(
    MessageFrame,
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary())).map(
        tuple
    ),
)


def sealed(body: bytes) -> bytes:
    """A frame with the right length and checksum around whatever is in it."""
    return struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body


@given(frames)
def test_what_is_encoded_is_decoded(frame: MessageFrame) -> None:
    assert decode_frame(encode_frame(frame)) == frame


def test_the_bytes_are_those_of_the_design() -> None:
    body = (
        b"\x01\x00" + struct.pack(">q", 5) + struct.pack(">i", 1) + b"k" + struct.pack(">i", 2) + b"vv"
        + struct.pack(">i", 1) + struct.pack(">i", 1) + b"h" + struct.pack(">i", -1)
    )  # fmt: skip
    assert encode_frame(MessageFrame(5, b"k", b"vv", (("h", None),))) == sealed(body)


@given(st.integers(0, len(encode_frame(FRAME)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_found(position: int, change: int) -> None:
    data = bytearray(encode_frame(FRAME))
    data[position] ^= change
    with pytest.raises(FrameError):
        decode_frame(bytes(data))


@given(st.integers(0, len(encode_frame(FRAME)) - 1))
def test_a_cut_frame_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        decode_frame(encode_frame(FRAME)[:size])


@pytest.mark.parametrize(
    "body",
    [
        b"\x02\x00" + bytes(8 + 12),
        b"\x01\x04" + bytes(8 + 12),
        b"\x01\x00" + bytes(8) + struct.pack(">i", -2) + bytes(8),
        b"\x01\x00" + bytes(8) + struct.pack(">i", 100) + bytes(8),
        b"\x01\x00" + bytes(8 + 8) + struct.pack(">i", 2**31 - 1),
        b"\x01\x00" + bytes(8 + 8) + struct.pack(">i", -1),
        b"\x01\x00" + bytes(8 + 12) + b"more",
        b"\x01\x00"
        + bytes(8 + 8)
        + struct.pack(">i", 1)
        + struct.pack(">i", 1)
        + b"\xff"
        + struct.pack(">i", 0),
        b"\x01\x00" + bytes(8 + 4),
    ],
    ids=[
        "version",
        "attributes",
        "key",
        "long key",
        "headers",
        "no headers",
        "rest",
        "header name",
        "no value",
    ],
)
def test_a_frame_that_is_wrong_inside_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(sealed(body))
