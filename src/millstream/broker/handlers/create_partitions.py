"""CreatePartitions: more partitions for existing topics."""

from typing import Any

from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

from millstream.broker.admin import (
    NO_THROTTLE,
    AdminBroker,
    AdminContext,
    code_of,
    defaults_of,
    message_of,
    submit_within,
)
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome, PartitionIncrease
from millstream.protocol.errors import KafkaError


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> CreatePartitionsResponse:
    command = CreatePartitions(
        tuple(map(_increase, request.topics)),
        validate_only=request.validate_only,
        defaults=defaults_of(broker),
    )
    try:
        outcomes = await submit_within(broker, command, request.timeout)
    except KafkaError as error:
        names = dict.fromkeys(topic.name for topic in request.topics)
        outcomes = tuple(IncreaseOutcome(name, error) for name in names)
    return CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=tuple(map(_result, outcomes)))


def _increase(topic: Any) -> PartitionIncrease:
    # Some clients write "no assignment" as an empty array instead of null.
    assignments = tuple(tuple(each.broker_ids) for each in topic.assignments) if topic.assignments else None
    return PartitionIncrease(topic.name, topic.count, assignments)


def _result(outcome: IncreaseOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=outcome.topic, error_code=code_of(outcome.error), error_message=message_of(outcome.error)
    )
