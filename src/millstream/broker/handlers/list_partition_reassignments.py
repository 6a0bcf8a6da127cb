"""ListPartitionReassignments, version 0: which partitions are on their way to other replicas."""

from collections.abc import Iterable, Iterator
from typing import Any

from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.image import MetadataImage, PartitionImage
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode


def handle(
    metadata: MetadataService, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    image = metadata.image
    topics = []
    for name, partitions in _wanted(image, request):
        ongoing = tuple(_ongoing(each) for each in partitions if each.adding or each.removing)
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return answer(
        ListPartitionReassignmentsResponse,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=tuple(topics),
    )


def _wanted(image: MetadataImage, request: Any) -> Iterator[tuple[str, Iterable[PartitionImage]]]:
    """Those asked for that exist; without a list, all."""
    if request.topics is None:
        for name, topic in sorted(image.topics.items()):
            yield name, topic.partitions
        return
    for asked in request.topics:
        found = (image.partition(asked.name, index) for index in asked.partition_indexes)
        yield asked.name, [each for each in found if each is not None]


def _ongoing(p: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=p.index,
        replicas=p.replicas,
        adding_replicas=p.adding,
        removing_replicas=p.removing,
    )
