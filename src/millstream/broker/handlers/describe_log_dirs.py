"""DescribeLogDirs: how many bytes each partition takes, and what is left on the disk."""

import os.path
from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from millstream.broker.handlers.admin import NO_THROTTLE, AdminBroker, AdminContext, unhurried
from millstream.cluster.metadata.image import MetadataImage
from millstream.protocol.errors import ErrorCode
from millstream.runtime.disk import Disk


class _Log(Protocol):
    @property
    def size_bytes(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...


class _Partition(Protocol):
    @property
    def log(self) -> _Log: ...

    @property
    def high_watermark(self) -> int: ...


class _Partitions(Protocol):
    def get(self, topic: str, index: int, /) -> _Partition | None: ...


class LogDirsBroker(AdminBroker, Protocol):
    @property
    def partitions(self) -> _Partitions: ...

    @property
    def disk(self) -> Disk: ...


async def handle(broker: LogDirsBroker, request: Any, _context: AdminContext) -> DescribeLogDirsResponse:
    data_dir = _data_dir(broker)
    wanted = chosen(broker.metadata.image, request.topics)
    try:
        usable_bytes = broker.disk.free_bytes(data_dir)
    except OSError:
        usable_bytes = -1
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=data_dir,
        topics=tuple([topic async for topic in _topics(broker.partitions, wanted)]),
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.NONE, results=(result,))


def _data_dir(broker: LogDirsBroker) -> str:
    return os.path.abspath(broker.settings.broker.data_dir)


def chosen(image: MetadataImage, topics: tuple[Any, ...] | None) -> list[tuple[str, Iterable[int]]]:
    """The partitions asked for, all of them where the client names none."""
    if topics is None:
        return [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(topic.topic, topic.partitions) for topic in topics]


async def _topics(
    partitions: _Partitions, wanted: list[tuple[str, Iterable[int]]]
) -> AsyncIterator[DescribeLogDirsTopic]:
    async for name, indexes in unhurried(wanted):
        found = [
            _described(index, partition)
            async for index in unhurried(indexes)
            if (partition := partitions.get(name, index)) is not None
        ]
        # A topic that is not here is left out, as Kafka does: the reply lists what the directory holds.
        if found:
            yield DescribeLogDirsTopic(name=name, partitions=tuple(found))


def _described(index: int, partition: _Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
        is_future_key=False,
    )
