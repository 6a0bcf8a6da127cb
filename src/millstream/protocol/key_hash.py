"""Kafka's key hash, MurmurHash2 with Kafka's seed, which chooses the partition of a message.

librdkafka has its own. This one is for the doors, for programs that need a key's partition without sending, and for
custom partitioners that fall back to it.
"""

from struct import iter_unpack

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as an unsigned 32-bit number.

    >>> murmur2(b"user-1")
    1404122828
    """
    whole = len(data) & ~3
    h = (_SEED ^ len(data)) & _MASK
    for (k,) in iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """The partition where Kafka's Java client puts messages of this key.

    >>> partition_of(b"user-1", 12)
    8
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
