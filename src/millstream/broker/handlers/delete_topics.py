"""DeleteTopics, versions 1 to 6: topics go, by name or by id."""

import uuid

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    code_of,
    message_of,
    others_first,
    submit_within,
    unhurried,
)
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.slices import slices_of
from millstream.cluster.metadata.topics import DeletedTopic, DeleteTopics, TopicRef
from millstream.protocol.errors import KafkaError

_AT_ONCE = 250
_NULL_ID = uuid.UUID(int=0)


async def handle(metadata: MetadataService, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    refs = tuple(
        TopicRef(topic.name, topic.topic_id if topic.topic_id != _NULL_ID else None)
        for topic in request.topics
    )
    outcomes: list[DeletedTopic] = []
    for some in slices_of(refs, _AT_ONCE, lambda ref: ref):
        try:
            outcomes += await submit_within(metadata, DeleteTopics(some), request.timeout)
        except KafkaError as error:
            outcomes += [DeletedTopic(ref.name, ref.topic_id, error) for ref in dict.fromkeys(some)]
        await others_first()
    return answer(
        DeleteTopicsResponse, responses=tuple([_result(each) async for each in unhurried(outcomes)])
    )


def _result(outcome: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
    )
