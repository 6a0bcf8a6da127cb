import contextlib
import io
import random
import struct
import subprocess
import sys
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocol.compression import (
    PIECE_BYTES,
    Compression,
    DecompressionError,
    UnpacksToMore,
    compress,
    decompress,
    pack,
    unpack,
)

PACKING = [codec for codec in Compression if codec is not Compression.NONE]


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=300), repeats=st.integers(1, 600))
def test_what_is_packed_unpacks_to_the_same_bytes(codec: Compression, data: bytes, repeats: int) -> None:
    data *= repeats
    assert decompress(codec, memoryview(compress(codec, data)), len(data)) == data


@pytest.mark.parametrize("codec", Compression)
def test_one_byte_over_the_limit_is_refused(codec: Compression) -> None:
    data = random.Random(1).randbytes(1000) * 200
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(DecompressionError, match="allowed"):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", PACKING)
def test_a_small_bomb_is_refused(codec: Compression) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, compress(codec, bytes(20_000_000)), 100_000)


@pytest.mark.parametrize("codec", PACKING)
def test_every_cut_is_noticed_or_ends_at_a_block_boundary(codec: Compression) -> None:
    data = random.Random(2).randbytes(500) * 3
    packed = compress(codec, data)
    # The xerial framing has no end mark: its bare header is a legal stream of nothing.
    legal = {16} if codec is Compression.SNAPPY else set()
    for cut in range(1, len(packed)):
        if cut in legal:
            continue
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:cut], len(data))


@pytest.mark.parametrize("codec", PACKING)
@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_damage_never_raises_anything_else(codec: Compression, at: int, byte: int, cut: int) -> None:
    packed = bytearray(compress(codec, b"hello world, " * 300))
    packed[at % len(packed)] = byte
    with contextlib.suppress(DecompressionError):
        decompress(codec, packed[: cut % len(packed) + 1], 100_000)


@pytest.mark.parametrize("codec", PACKING)
@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=200))
def test_garbage_never_raises_anything_else(codec: Compression, data: bytes) -> None:
    with contextlib.suppress(DecompressionError):
        decompress(codec, data, 10_000)


def test_raw_snappy_of_librdkafka_is_read() -> None:
    data = b"raw snappy " * 9000
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_snappy_is_written_in_the_framing_java_reads() -> None:
    data = bytes(range(256)) * 300
    packed = compress(Compression.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == data[: 32 * 1024]


@pytest.mark.parametrize("level", [None, 1, 9, 17])
def test_lz4_blocks_are_independent(level: int | None) -> None:
    packed = compress(Compression.LZ4, b"abc" * 100_000, level)
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert decompress(Compression.LZ4, packed, 300_000) == b"abc" * 100_000


def test_zstd_frames_of_streaming_writers_are_read() -> None:
    target = io.BytesIO()
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(target, closefd=False) as stream:
        for _ in range(5):
            stream.write(b"streamed " * 20_000)
            stream.flush()
    frame = target.getvalue()
    assert zstandard.frame_content_size(frame) == -1
    assert decompress(Compression.ZSTD, frame, 900_000) == b"streamed " * 100_000
    assert decompress(Compression.ZSTD, frame + frame, 1_800_000) == b"streamed " * 200_000
    with pytest.raises(DecompressionError, match="allowed"):
        decompress(Compression.ZSTD, frame, 899_999)


def test_a_zstd_frame_that_lies_about_its_size_reserves_nothing() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(bytes(300)))
    frame[5:7] = (60_000).to_bytes(2, "little")
    with pytest.raises(DecompressionError):
        decompress(Compression.ZSTD, frame, 100_000)


def test_many_empty_gzip_members_are_not_copied_with_all_that_follow_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = 0
    new_stream = zlib.decompressobj

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._stream = new_stream(wbits=wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal taken
            taken += len(data)
            return self._stream.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

    monkeypatch.setattr("millstream.protocol.compression.zlib.decompressobj", Counted)
    packed = zlib.compress(b"", wbits=31) * 20_000 + zlib.compress(b"end", wbits=31)
    assert decompress(Compression.GZIP, packed, 10) == b"end"
    assert taken < 1000 * len(packed)


def test_gzip_members_one_after_the_other_are_read() -> None:
    packed = zlib.compress(b"one", wbits=31) + zlib.compress(b"two", wbits=31)
    assert decompress(Compression.GZIP, packed, 6) == b"onetwo"
    with pytest.raises(DecompressionError, match="allowed"):
        decompress(Compression.GZIP, packed, 5)


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, None, 12), (Compression.ZSTD, 1, 19)],
)
def test_a_higher_level_packs_tighter(codec: Compression, low: int | None, high: int) -> None:
    source = random.Random(3)
    words = [source.randbytes(source.randint(2, 12)) for _ in range(500)]
    data = b"".join(source.choice(words) for _ in range(10_000))
    assert len(compress(codec, data, high)) < len(compress(codec, data, low))


def test_no_codec_library_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys, millstream.protocol.compression;"
        "sys.exit(any(name in sys.modules for name in ('lz4', 'zstandard', 'cramjam')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 400))
@settings(max_examples=15, deadline=None)
def test_pieces_are_the_whole(codec: Compression, data: bytes, repeat: int) -> None:
    whole = data * repeat
    assert b"".join(unpack(codec, compress(codec, whole), len(whole))) == whole
    pieces = [whole[at : at + 50_000] for at in range(0, len(whole), 50_000)]
    assert decompress(codec, b"".join(pack(codec, pieces)), len(whole)) == whole


@pytest.mark.parametrize("codec", list(Compression))
def test_pieces_beyond_the_limit_are_refused_and_no_piece_is_large(codec: Compression) -> None:
    packed = compress(codec, bytes(5_000_000))
    pieces = []
    with pytest.raises(UnpacksToMore, match="more than the allowed 3000000 bytes"):
        pieces.extend(unpack(codec, packed, 3_000_000))
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert sum(map(len, pieces)) <= 3_000_000


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
@given(cut=st.integers(1, 200))
@settings(max_examples=15, deadline=None)
def test_pieces_of_what_is_cut_off_are_refused(codec: Compression, cut: int) -> None:
    packed = compress(codec, bytes(range(256)) * 400)
    with pytest.raises(DecompressionError):
        list(unpack(codec, packed[: -min(cut, len(packed) - 1)], 1_000_000))
