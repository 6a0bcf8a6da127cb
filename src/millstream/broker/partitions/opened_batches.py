"""Opens producers' batches where the topic requires another codec, or is compacted and requires keys.

A batch is opened piece by piece, so the memory needed does not depend on its unpacked size. A batch that would take too
long, because of its unpacked size or number of records, is refused with MESSAGE_TOO_LARGE: Java's producer then sends
smaller ones.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import msgspec

from millstream.broker.server.long_work import LongWork
from millstream.broker.server.memory import MemoryBudget
from millstream.config.settings import PerformanceSettings
from millstream.config.topic import TopicConfig
from millstream.protocol.compression import Buffer, Compression, pack
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CODEC_MASK, HEADER_SIZE, BatchHeader, read_header
from millstream.protocol.record_spans import keyed_windows
from millstream.protocol.records import check_record_count, seal_packed, unpack_batch
from millstream.runtime.workers import Workers

Result = TypeVar("Result")

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
# The most memory for opening, besides the batch before and after: pieces, and a codec's window.
OPENING_BYTES = 16 << 20


class OpeningLimits(msgspec.Struct, frozen=True):
    unpacked_bytes: int = 64 << 20
    records: int = 500_000

    @classmethod
    def of(cls, settings: PerformanceSettings) -> "OpeningLimits":
        return cls(settings.max_unpacked_batch, settings.max_opened_records)


class BatchOpener:
    """Opens batches in threads, with a bound on the memory that this takes."""

    def __init__(
        self, workers: Workers, long_work: LongWork, memory: MemoryBudget, limits: OpeningLimits
    ) -> None:
        self.limits = limits
        self.long_work = long_work
        self._workers = workers
        self._memory = memory

    def held(self, size_bytes: int) -> AbstractContextManager[None]:
        """Memory for batches of that size while they are opened."""
        return self._memory.held(size_bytes + OPENING_BYTES)

    async def run(self, convert: Callable[[], Result], *, is_long: bool) -> Result:
        """Long jobs run one after the other: the same threads sync the logs."""
        return await (self.long_work.apart(convert) if is_long else self._workers.run(convert))


def must_open(config: TopicConfig, header: BatchHeader) -> bool:
    return config.compacts or (
        config.compression_type != "producer" and header.codec != _CODECS[config.compression_type]
    )


def open_and_convert(config: TopicConfig, batch: Buffer, limits: OpeningLimits) -> bytearray:
    """The batch as the topic wants it; KafkaError when it may not be stored there."""
    header = read_header(memoryview(batch))
    check_record_count(header, limits.records)
    _, pieces = unpack_batch(batch, limits.unpacked_bytes)
    source = keyed_windows(header, pieces) if config.compacts else pieces
    if config.compression_type == "producer" or header.codec == _CODECS[config.compression_type]:
        for _ in source:
            pass
        return bytearray(batch)
    codec = _CODECS[config.compression_type]
    packed = bytearray()
    for piece in pack(codec, source, _level(config, codec)):
        packed += piece
        if HEADER_SIZE + len(packed) > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"with compression.type={config.compression_type} the batch is larger than max.message.bytes,"
                f" which is {config.max_message_bytes}",
            )
    attributes = header.attributes & ~CODEC_MASK | codec
    return bytearray(seal_packed(header._replace(attributes=attributes), packed))


def _level(config: TopicConfig, codec: Compression) -> int | None:
    return {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
