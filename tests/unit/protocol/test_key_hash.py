"""The key hash, against the values that Kafka's own tests state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client import HashPartitioner, murmur2, partition_of

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", KNOWN)
def test_hash_is_that_of_the_java_client(key: bytes) -> None:
    assert murmur2(key) == KNOWN[key] % 2**32


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partition_is_within_the_topic_and_stays_the_same(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
    assert HashPartitioner().partition("any", key, b"", count) == partition_of(key, count)
