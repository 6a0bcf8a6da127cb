"""DeleteTopics, by name or by id."""

import uuid
from typing import Any

from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from millstream.broker.admin import (
    NO_THROTTLE,
    AdminBroker,
    AdminContext,
    code_of,
    message_of,
    submit_within,
)
from millstream.cluster.metadata.topics import DeletedTopic, DeleteTopics, TopicRef
from millstream.protocol.errors import KafkaError

_NULL_ID = uuid.UUID(int=0)


async def handle(broker: AdminBroker, request: Any, _context: AdminContext) -> DeleteTopicsResponse:
    refs = tuple(
        TopicRef(topic.name, topic.topic_id if topic.topic_id != _NULL_ID else None)
        for topic in request.topics
    )
    try:
        outcomes = await submit_within(broker, DeleteTopics(refs), request.timeout)
    except KafkaError as error:
        outcomes = tuple(DeletedTopic(ref.name, ref.topic_id, error) for ref in dict.fromkeys(refs))
    return DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=tuple(map(_result, outcomes)))


def _result(outcome: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
    )
