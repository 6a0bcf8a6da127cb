"""Walk the batches of a segment file, reading it in large pieces."""

from collections.abc import Iterator

from millstream.protocol.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    check_stored,
    read_header,
)
from millstream.runtime.disk import File

PIECE_BYTES = 1 << 20


def scan_batches(
    file: File, position: int, end: int, *, verify: bool = True, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch in [position, end).

    Raises CorruptBatch with the position of the first batch that is torn, fails its checksum or is no batch at all.
    """
    piece = memoryview(b"")
    start = position
    while position < end:
        at = position - start
        if len(piece) - at < HEADER_SIZE:
            start, piece = position, _read(file, position, end, piece_bytes)
            at = 0
            if len(piece) < HEADER_SIZE:
                raise CorruptBatch(f"{end - position} bytes are too few for a record batch", position)
        header = read_header(piece, at)
        size = header.size_bytes
        if size < HEADER_SIZE or position + size > end:
            raise CorruptBatch(f"record batch claims {size} bytes, {end - position} are left", position)
        if at + size > len(piece):
            start, piece = position, _read(file, position, end, max(piece_bytes, size))
            at = 0
            if len(piece) < size:
                raise CorruptBatch("record batch is cut short", position)
        if verify:
            try:
                check_stored(piece, at, header)
            except CorruptBatch as error:
                raise CorruptBatch(error.message, position) from None
        yield position, header, piece[at : at + size]
        position += size


def _read(file: File, position: int, end: int, wanted: int) -> memoryview:
    return memoryview(file.pread(min(wanted, end - position), position))
