"""ShareGroupDescribe, version 1 (KIP-932)."""

from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

from millstream.broker.api.authorized_operations import GROUP_OPERATIONS, NOT_REQUESTED
from millstream.broker.api.call import Call
from millstream.broker.coordinators.groups import Groups
from millstream.broker.handlers.admin import answer
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.share_requests import (
    DescribedShareGroup,
    DescribedShareMember,
    DescribeShareGroup,
)
from millstream.protocol.errors import ErrorCode, KafkaError

_NO_GROUP = DescribedShareGroup("Dead", 0, 0, "", (), ())


async def handle(
    groups: Groups, metadata: MetadataService, request: ShareGroupDescribeRequest, _call: Call
) -> ShareGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    described = [await _describe(groups, metadata, group_id, operations) for group_id in request.group_ids]
    return answer(ShareGroupDescribeResponse, groups=tuple(described))


async def _describe(
    groups: Groups, metadata: MetadataService, group_id: str, operations: int
) -> DescribedGroup:
    code, message = ErrorCode.NONE, None
    try:
        described = await groups.submit(group_id, DescribeShareGroup(group_id))
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


def _member(member: DescribedShareMember, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        assignment=Assignment(
            topic_partitions=tuple(
                TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=tuple(sorted(partitions))
                )
                for topic_id, partitions in member.assigned.items()
                if (topic := image.topic_by_id(topic_id)) is not None
            )
        ),
    )
