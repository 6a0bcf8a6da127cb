"""ConsumerGroupDescribe, versions 0 to 1: the state and members of KIP-848 groups.

Not done: access rules (all operations are reported as allowed).
"""

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

from millstream.broker.api.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.records import PartitionSet
from millstream.coordinator.groups.replies import DescribedConsumer, DescribedConsumerGroup
from millstream.coordinator.groups.requests import DescribeConsumerGroup
from millstream.protocol.errors import ErrorCode, KafkaError

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_NO_GROUP = DescribedConsumerGroup("Dead", 0, 0, "", ())


async def handle(
    groups: Groups, metadata: MetadataService, request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    described = [await _describe(groups, metadata, group_id, operations) for group_id in request.group_ids]
    return answer(ConsumerGroupDescribeResponse, groups=tuple(described))


async def _describe(
    groups: Groups, metadata: MetadataService, group_id: str, operations: int
) -> DescribedGroup:
    code, message = ErrorCode.NONE, None
    try:
        request = DescribeConsumerGroup(group_id)
        described = await groups.submit(group_id, request)
    except KafkaError as error:
        code, message, described = error.code, error.message, _NO_GROUP
    image = metadata.image
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state=described.state,
        group_epoch=described.group_epoch,
        assignment_epoch=described.assignment_epoch,
        assignor_name=described.assignor,
        members=tuple(_member(member, image) for member in described.members),
        authorized_operations=operations,
    )


def _member(member: DescribedConsumer, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assigned, image),
        target_assignment=_assignment(member.target, image),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(partitions: PartitionSet, image: MetadataImage) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(indexes)))
            for topic_id, indexes in partitions.items()
            if (topic := image.topic_by_id(topic_id)) is not None
        )
    )
