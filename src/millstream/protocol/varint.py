"""Zigzag varints, as record batches use them for lengths, deltas and timestamps.

Written by hand, because no library reads them from the middle of a buffer without a call per byte.
"""

INT32_BYTES = 5
INT64_BYTES = 10


class VarintError(ValueError):
    """More bytes, or a larger value, than the type allows."""


def read_varint(data: bytes, position: int, most_bytes: int = INT32_BYTES) -> tuple[int, int]:
    """The value at `position` and the position behind it; IndexError when the data ends inside."""
    value = shift = 0
    for _ in range(most_bytes):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> (32 if most_bytes == INT32_BYTES else 64):
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise VarintError(f"the varint that ends before byte {position} is too long")


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed value of up to 64 bits."""
    return _SMALL[value] if _LEAST <= value < _MOST else _encode(value)


def _encode(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Covers most lengths and deltas. Indexed by the value itself; negative values index from the end.
_LEAST, _MOST = -64, 2048
_SMALL = [_encode(value) for value in (*range(_MOST), *range(_LEAST, 0))]
