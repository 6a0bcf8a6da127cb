"""A write that was interrupted leaves some of its sectors: none of it may be taken for damage."""

from itertools import product

from millstream.cluster.raft.wal_frames import encode_frame, read_frames
from millstream.testing.disk.content import SECTOR_BYTES


def test_what_is_left_of_an_interrupted_write_is_cut_off() -> None:
    written = encode_frame(2, bytes(range(1, 251)) * 4)
    for distance in range(1, SECTOR_BYTES + 1):
        before = encode_frame(1, bytes(2 * SECTOR_BYTES - distance - len(encode_frame(1, b""))))
        start, end = len(before), len(before) + len(written)
        cuts = [start, *range(start + distance, end, SECTOR_BYTES), end]
        for stored in product((False, True), repeat=len(cuts) - 1):
            data = bytearray(before)
            for is_stored, first, last in zip(stored, cuts, cuts[1:], strict=False):
                if is_stored:
                    data.extend(bytes(last - len(data)))
                    data[first:last] = written[first - start : last - start]
            found = [frame.sequence for frame in read_frames("log", bytes(data))]
            assert found == ([1, 2] if all(stored) else [1]), (distance, stored)
