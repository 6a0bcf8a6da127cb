"""The two reasons to open a producer's batch: the topic wants another codec, or it is compacted and needs keys."""

from millstream.config.topic import TopicConfig
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CODEC_MASK, BatchHeader, read_header
from millstream.protocol.records import decode_records, open_batch, seal_batch

_CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
# What a batch of the largest size may unpack to; more is a compression bomb.
_MAX_UNPACKED_BYTES = 256 << 20


def must_open(config: TopicConfig, header: BatchHeader) -> bool:
    return config.compacts or (
        config.compression_type != "producer" and header.codec != _CODECS[config.compression_type]
    )


def open_and_convert(config: TopicConfig, batch: bytes) -> bytearray:
    """The batch as the topic wants it; KafkaError when it may not be stored there."""
    if config.compacts and any(record.key is None for record in decode_records(batch, _MAX_UNPACKED_BYTES)):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a compacted topic takes no records without a key")
    header = read_header(batch)
    if config.compression_type == "producer" or header.codec == _CODECS[config.compression_type]:
        return bytearray(batch)
    codec = _CODECS[config.compression_type]
    opened, payload = open_batch(batch, _MAX_UNPACKED_BYTES)
    attributes = opened.attributes & ~CODEC_MASK | codec
    return bytearray(seal_batch(opened._replace(attributes=attributes), payload, _level(config, codec)))


def _level(config: TopicConfig, codec: Compression) -> int | None:
    return {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
