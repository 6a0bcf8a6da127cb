"""The codecs of a record batch, as Kafka's own clients write and read them.

Output is bounded: data that unpacks to more than the caller's limit is refused before the memory is used. Each
library is imported on the first batch that needs it, because most nodes never open a compressed batch.
"""

import enum
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = struct.Struct(">i")

# How much is unpacked at a time.
PIECE_BYTES = 256 * 1024

# How much is given to zlib at a time. At the end of each gzip member zlib copies the rest of its input, which would
# take minutes for a large input of a hundred thousand empty members.
_GZIP_CHUNK_BYTES = 8 * 1024

# A snappy element yields at most 64 bytes and takes at least two; a longer claim in the header is false.
_SNAPPY_MAX_RATIO = 32

# Kafka's default `compression.lz4.level` is 9, which means the fast compressor.
_LZ4_DEFAULT_LEVEL = 9
_LZ4_LOWEST_HIGH_LEVEL = 3
_LZ4_FIRST_CHUNK_BYTES = 64 * 1024

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RLE_BLOCK = 1
# The size that the format requires readers to support, which Java's writer uses up to level 19.
_ZSTD_MOST_WINDOW_BYTES = 8 << 20
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50


class Compression(enum.IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class DecompressionError(Exception):
    """The bytes are invalid for the codec, or unpack to more than the caller allows."""


class UnpacksToMore(DecompressionError):
    """The data unpacks to more than the caller allows; the part unpacked so far is valid."""


# A zstd context is costly to create and serves one call at a time: a call takes one from here, or creates
# one, and puts it back. `pop` and `append` are atomic, so this is safe from several threads.
_zstd_compressors: dict[int, "list[zstandard.ZstdCompressor]"] = {}
_zstd_decompressors: "list[zstandard.ZstdDecompressor]" = []


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """`data` packed with `codec`; `level` as in Kafka's `compression.<codec>.level`."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=31)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return _compress_zstd(data, level)


def decompress(codec: Compression, data: Buffer, limit: int) -> bytes:
    """`data` unpacked; raises `DecompressionError` when it is corrupt or longer than `limit` bytes."""
    match codec:
        case Compression.NONE:
            if len(data) > limit:
                raise _too_large(limit)
            return bytes(data)
        case Compression.GZIP:
            return _joined(_gzip_pieces(data, limit + 1), limit)
        case Compression.SNAPPY:
            return _joined(_snappy_pieces(data, limit), limit)
        case Compression.LZ4:
            # The library reserves a whole piece, so a fixed large one would cost more than the data.
            piece_bytes = max(_LZ4_FIRST_CHUNK_BYTES, 4 * len(data))
            return _joined(_lz4_pieces(data, min(piece_bytes, limit + 1)), limit)
        case Compression.ZSTD:
            return _decompress_zstd(data, limit)


def unpack(codec: Compression, data: Buffer, limit: int) -> Iterator[bytes]:
    """As `decompress`, with only one piece of the output in memory at a time.

    A raw snappy block comes as one piece, at most 32 times its packed size.
    """
    return _within(_pieces(codec, data, limit), limit)


def _within(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        yield piece


def _joined(pieces: Iterable[bytes], limit: int) -> bytes:
    parts = list(_within(pieces, limit))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _pieces(codec: Compression, data: Buffer, limit: int) -> Iterator[bytes]:
    match codec:
        case Compression.NONE:
            view = memoryview(data)
            return (bytes(view[at : at + PIECE_BYTES]) for at in range(0, len(view), PIECE_BYTES))
        case Compression.GZIP:
            return _gzip_pieces(data, PIECE_BYTES)
        case Compression.SNAPPY:
            return _snappy_pieces(data, limit)
        case Compression.LZ4:
            return _lz4_pieces(data, PIECE_BYTES)
        case Compression.ZSTD:
            return _zstd_pieces(data)


def pack(codec: Compression, pieces: Iterable[bytes], level: int | None = None) -> Iterator[bytes]:
    """As `compress`, for data in pieces."""
    match codec:
        case Compression.NONE:
            yield from pieces
        case Compression.GZIP:
            yield from _packed(zlib.compressobj(-1 if level is None else level, wbits=31), pieces)
        case Compression.SNAPPY:
            yield _XERIAL_HEADER
            for block in _blocks(pieces, _XERIAL_BLOCK_BYTES):
                yield _compress_snappy(block)[len(_XERIAL_HEADER) :]
        case Compression.LZ4:
            import lz4.frame

            stream: Any = lz4.frame.LZ4FrameCompressor(
                compression_level=_lz4_level(level), block_linked=False
            )
            yield stream.begin()
            yield from _packed(stream, pieces)
        case Compression.ZSTD:
            import zstandard

            compressor = zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level)
            yield from _packed(compressor.compressobj(), pieces)


def _packed(stream: Any, pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _blocks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        data = rest + piece
        whole = len(data) // size * size
        for at in range(0, whole, size):
            yield data[at : at + size]
        rest = data[whole:]
    if rest:
        yield rest


def _too_large(limit: int) -> UnpacksToMore:
    return UnpacksToMore(f"the records unpack to more than the allowed {limit} bytes")


def _gzip_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    view = memoryview(data)
    position = 0
    rest: Buffer = b""
    while True:
        stream = zlib.decompressobj(wbits=31)
        while not stream.eof:
            if not rest:
                rest = view[position : position + _GZIP_CHUNK_BYTES]
                position += len(rest)
            try:
                piece = stream.decompress(rest, piece_bytes)
            except zlib.error as error:
                raise DecompressionError(f"corrupt gzip data: {error}") from None
            rest = stream.unconsumed_tail
            if piece:
                yield piece
            elif position == len(view) and not rest:
                break
        if not stream.eof:
            raise DecompressionError("gzip data ends too early")
        # Java's reader accepts several consecutive members, so they are legal in a batch.
        rest = stream.unused_data
        if position == len(view) and not rest:
            return


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_pieces(data: Buffer, limit: int) -> Iterator[bytes]:
    view = memoryview(data)
    if view[:8] != _XERIAL_MAGIC:
        yield _decompress_snappy_block(view, limit)
        return
    size = 0
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise DecompressionError("snappy data ends inside its header")
    while position < len(view):
        if len(view) - position < 4:
            raise DecompressionError("snappy data ends inside a block's length")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if length < 0 or length > len(view) - position:
            raise DecompressionError(f"a snappy block claims {length} bytes of {len(view) - position}")
        try:
            piece = _decompress_snappy_block(view[position : position + length], limit - size)
        except UnpacksToMore:
            raise _too_large(limit) from None
        size += len(piece)
        position += length
        yield piece


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > limit:
            raise _too_large(limit)
        if claimed > len(block) * _SNAPPY_MAX_RATIO:
            raise DecompressionError("a snappy block claims more than it can hold")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"corrupt snappy data: {error}") from None


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    # Java's reader refuses blocks that refer to earlier ones.
    packed: bytes = lz4.frame.compress(
        data, compression_level=_lz4_level(level), block_linked=False, store_size=False
    )
    return packed


def _lz4_level(level: int | None) -> int:
    return 0 if level is None or level == _LZ4_DEFAULT_LEVEL else max(level, _LZ4_LOWEST_HIGH_LEVEL)


def _lz4_pieces(data: Buffer, piece_bytes: int) -> Iterator[bytes]:
    import lz4.frame

    stream: Any = lz4.frame.LZ4FrameDecompressor()
    pending: Buffer = data
    while not stream.eof:
        try:
            piece = stream.decompress(pending, max_length=piece_bytes)
        except (RuntimeError, EOFError) as error:
            raise DecompressionError(f"corrupt lz4 data: {error}") from None
        pending = b""
        if piece:
            yield piece
        elif not stream.eof:
            raise DecompressionError("lz4 data ends too early")
    if stream.unused_data:
        raise DecompressionError("bytes after the end of the lz4 data")


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    spare = _zstd_compressors.setdefault(level, [])
    try:
        compressor = spare.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level)
    packed = compressor.compress(data)
    spare.append(compressor)
    return packed


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    import zstandard

    try:
        decompressor = _zstd_decompressors.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    size = 0
    try:
        for frame, most in _zstd_frames(memoryview(data)):
            left = limit - size
            # The library reserves what the header claims, so the claim is checked first.
            content_size = zstandard.frame_content_size(frame)
            if content_size > left:
                raise _too_large(limit)
            if content_size > most:
                raise DecompressionError("a zstd frame claims more than it can hold")
            part = decompressor.decompress(frame, max_output_size=min(most, left + _ZSTD_BLOCK_BYTES) or 1)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    except zstandard.ZstdError as error:
        raise DecompressionError(f"corrupt zstd data: {error}") from None
    finally:
        _zstd_decompressors.append(decompressor)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_pieces(data: Buffer) -> Iterator[bytes]:
    import zstandard

    # Not a shared context: the caller may stop half-way.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MOST_WINDOW_BYTES)
    try:
        for frame, most in _zstd_frames(memoryview(data)):
            if zstandard.frame_content_size(frame) > most:
                raise DecompressionError("a zstd frame claims more than it can hold")
            reader = decompressor.stream_reader(frame)
            while piece := reader.read(PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise DecompressionError(f"corrupt zstd data: {error}") from None


def _zstd_frames(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Each frame, and the most bytes that it can unpack to according to its block headers.

    Streaming writers (Java's) leave the content size out, and the library's stream reader accepts a truncated
    frame; walking the block headers solves both problems.
    """
    import zstandard

    position = 0
    while position < len(data):
        start = position
        if int.from_bytes(data[start : start + 4], "little") & ~0xF == _ZSTD_SKIPPABLE_MAGIC:
            position += 8 + int.from_bytes(data[start + 4 : start + 8], "little")
            continue
        parameters = zstandard.get_frame_parameters(data[start:])
        position += zstandard.frame_header_size(data[start:])
        most = 0
        last = 0
        while not last:
            header = int.from_bytes(data[position : position + 3], "little")
            last, kind, block_bytes = header & 1, header >> 1 & 3, header >> 3
            most += block_bytes if kind <= _ZSTD_RLE_BLOCK else _ZSTD_BLOCK_BYTES
            position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else block_bytes)
            if position > len(data):
                raise DecompressionError("zstd data ends too early")
        position += 4 if parameters.has_checksum else 0
        if position > len(data):
            raise DecompressionError("zstd data ends too early")
        yield data[start:position], most
    if position > len(data) or not data:
        raise DecompressionError("zstd data ends too early")
