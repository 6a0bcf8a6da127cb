"""Manifests: what is written is read again, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.backup.manifest import Damaged, decode_manifest, encode_manifest, segment_path
from support.backup_values import manifest_of, partition_of, segment_of, topic_of

MANIFEST = manifest_of("b", topic_of("events", partition_of(0, 0, 20, segment_of(0, 10), segment_of(10, 20))))


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "path") == MANIFEST


def test_it_counts_what_it_names() -> None:
    assert MANIFEST.size_bytes == 200
    assert MANIFEST.record_count == 20
    assert len({segment_path(*each) for each in MANIFEST.files()}) == 2


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    encoded = bytearray(encode_manifest(MANIFEST))
    position = data.draw(st.integers(0, len(encoded) - 1))
    bit = data.draw(st.integers(0, 7))
    encoded[position] ^= 1 << bit
    with pytest.raises(Damaged, match="the/path"):
        decode_manifest(bytes(encoded), "the/path")


def test_a_cut_manifest_is_damaged() -> None:
    encoded = encode_manifest(MANIFEST)
    for size in range(len(encoded)):
        with pytest.raises(Damaged):
            decode_manifest(encoded[:size], "path")


def test_another_format_is_named() -> None:
    encoded = encode_manifest(MANIFEST).replace(b'"format":1', b'"format":2')
    with pytest.raises(Damaged, match="format 2"):
        decode_manifest(encoded, "path")
