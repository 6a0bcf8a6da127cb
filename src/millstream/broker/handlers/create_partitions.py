"""CreatePartitions, versions 0 to 3: more partitions for existing topics."""

from typing import Any

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    code_of,
    message_of,
    others_first,
    submit_within,
    unhurried,
)
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome, PartitionIncrease
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.slices import slices_of
from millstream.protocol.errors import KafkaError

# Topics that grow by one command.
_AT_ONCE = 100


async def handle(
    metadata: MetadataService, defaults: Defaults, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    outcomes: list[IncreaseOutcome] = []
    earlier = 0
    for some in slices_of(map(_increase, request.topics), _AT_ONCE, lambda increase: increase.topic):
        command = CreatePartitions(some, request.validate_only, defaults, earlier)
        before = metadata.image
        try:
            outcomes += await submit_within(metadata, command, request.timeout)
            earlier += sum(_added(before, increase) for increase in some)
        except KafkaError as error:
            names = dict.fromkeys(increase.topic for increase in some)
            outcomes += [IncreaseOutcome(name, error) for name in names]
        await others_first()
    return answer(
        CreatePartitionsResponse, results=tuple([_result(each) async for each in unhurried(outcomes)])
    )


def _added(before: MetadataImage, increase: PartitionIncrease) -> int:
    topic = before.topic(increase.topic)
    return 0 if topic is None else max(increase.count - len(topic.partitions), 0)


def _increase(topic: Any) -> PartitionIncrease:
    # Some clients write "no assignment" as an empty array instead of null.
    assignments = tuple(tuple(each.broker_ids) for each in topic.assignments) if topic.assignments else None
    return PartitionIncrease(topic.name, topic.count, assignments)


def _result(outcome: IncreaseOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=outcome.topic, error_code=code_of(outcome.error), error_message=message_of(outcome.error)
    )
