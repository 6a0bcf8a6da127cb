"""Walk the batches of a segment file, reading it in large pieces; go on after damage."""

from collections.abc import Iterator

from millstream.protocol.record_batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    CorruptBatch,
    check_stored,
    read_header,
)
from millstream.runtime.disk import File

PIECE_BYTES = 1 << 20
_RESYNC_PIECE_BYTES = 4 << 20


def scan_batches(
    file: File, position: int, end: int, *, verify: bool = True, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch in [position, end).

    Raises CorruptBatch with the position of the first batch that is torn, invalid or has a wrong checksum.
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


def scan_sound(
    file: File, position: int, end: int, *, piece_bytes: int = PIECE_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """As `scan_batches`, but skips damage; the caller sees it as a gap between positions."""
    while position < end:
        try:
            yield from scan_batches(file, position, end, piece_bytes=piece_bytes)
        except CorruptBatch as error:
            following = find_batch(file, error.position + 1, end)
            if following is None:
                return
            position = following
        else:
            return


def find_batch(file: File, position: int, end: int) -> int | None:
    """The position of the next sound batch at or after `position`."""
    while position < end:
        data = file.pread(min(_RESYNC_PIECE_BYTES, end - position), position)
        at = data.find(MAGIC, MAGIC_AT)
        while at >= 0:
            start = at - MAGIC_AT
            if len(data) - start >= HEADER_SIZE:
                header = read_header(data, start)
                fits = HEADER_SIZE <= header.size_bytes <= end - position - start
                if fits and _holds(file, position + start, header):
                    return position + start
            at = data.find(MAGIC, at + 1)
        if len(data) < _RESYNC_PIECE_BYTES:
            return None
        position += len(data) - HEADER_SIZE
    return None


def _holds(file: File, position: int, header: BatchHeader) -> bool:
    if header.record_count < 0 or header.last_offset_delta < 0 or header.base_offset < 0:
        return False
    try:
        check_stored(memoryview(file.pread(header.size_bytes, position)), 0, header)
    except CorruptBatch:
        return False
    return True


def _read(file: File, position: int, end: int, wanted: int) -> memoryview:
    return memoryview(file.pread(min(wanted, end - position), position))
