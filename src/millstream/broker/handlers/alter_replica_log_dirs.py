"""AlterReplicaLogDirs, versions 1 to 2: a node has one directory, so that a replica can be moved to where it is and
nowhere else.
"""

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDir, AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer, unhurried
from millstream.broker.partitions.registry import Partitions
from millstream.protocol.errors import ErrorCode


async def handle(
    partitions: Partitions, data_dir: str, request: AlterReplicaLogDirsRequest, _call: Call
) -> AlterReplicaLogDirsResponse:
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
