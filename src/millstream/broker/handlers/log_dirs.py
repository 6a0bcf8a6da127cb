"""Directories of logs: DescribeLogDirs, versions 1 to 4, and AlterReplicaLogDirs, versions 1 to 2.

Not done: several directories (a node has one), and future replicas.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDir, AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, unhurried
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode
from millstream.runtime.disk import Disk


async def describe_log_dirs(
    metadata: MetadataService,
    partitions: Partitions,
    disk: Disk,
    data_dir: str,
    request: DescribeLogDirsRequest,
    call: Call,
) -> DescribeLogDirsResponse:
    """The bytes of each partition, and the disk's total and free bytes."""
    wanted = chosen(metadata.image, request.topics)
    try:
        total_bytes, usable_bytes = disk.total_bytes(data_dir), disk.free_bytes(data_dir)
    except OSError:
        total_bytes = usable_bytes = -1
    result = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=data_dir,
        topics=tuple([topic async for topic in _topics(partitions, wanted)]),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return answer(DescribeLogDirsResponse, error_code=ErrorCode.NONE, results=(result,))


def chosen(image: MetadataImage, topics: tuple[Any, ...] | None) -> list[tuple[str, Iterable[int]]]:
    """The requested partitions; all where the client names none."""
    if topics is None:
        return [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(topic.topic, topic.partitions) for topic in topics]


async def _topics(
    partitions: Partitions, wanted: list[tuple[str, Iterable[int]]]
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


def _described(index: int, partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
        is_future_key=False,
    )


async def alter_replica_log_dirs(
    partitions: Partitions, data_dir: str, request: AlterReplicaLogDirsRequest, _call: Call
) -> AlterReplicaLogDirsResponse:
    """Accepts only the node's one directory, where each replica already is."""
    results = []
    async for wanted in unhurried(request.dirs):
        async for topic in unhurried(wanted.topics):
            moved = [
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=_code(partitions, data_dir, wanted, topic.name, index)
                )
                async for index in unhurried(topic.partitions)
            ]
            results.append(AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=tuple(moved)))
    return answer(AlterReplicaLogDirsResponse, results=tuple(results))


def _code(
    partitions: Partitions, data_dir: str, wanted: AlterReplicaLogDir, topic: str, index: int
) -> ErrorCode:
    if wanted.path != data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    return ErrorCode.REPLICA_NOT_AVAILABLE if partitions.get(topic, index) is None else ErrorCode.NONE
