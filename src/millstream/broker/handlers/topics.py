"""Topics and partitions are created and deleted.

CreateTopics, versions 2 to 7; CreatePartitions, versions 0 to 3; DeleteTopics, versions 1 to 6. Not done: a quota on
changes (`controller_mutation_rate`).
"""

import asyncio
import datetime
import uuid
from typing import Any

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from msgspec.structs import replace

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import (
    answer,
    code_of,
    layers_of,
    message_of,
    others_first,
    submit_within,
    unhurried,
)
from millstream.cluster.metadata.commands import slices_of
from millstream.cluster.metadata.defaults import Defaults
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.partitions import CreatePartitions, IncreaseOutcome, PartitionIncrease
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.metadata.topics import (
    CreatedTopic,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
    TopicRef,
    in_slices,
)
from millstream.config.describe import BrokerLayers, describe_topic
from millstream.protocol.errors import ErrorCode, KafkaError

_CONFIGS_FROM_VERSION = 5
_PARTITIONS_AT_ONCE = 250


async def create_topics(
    metadata: MetadataService, defaults: Defaults, request: CreateTopicsRequest, call: Call
) -> CreateTopicsResponse:
    """Each topic is created or refused on its own."""
    command = CreateTopics(
        tuple([new_topic(each) async for each in unhurried(request.topics)]),
        validate_only=request.validate_only,
        defaults=defaults,
    )
    outcomes = await _create(metadata, command, request.timeout)
    described: dict[tuple[tuple[str, str], ...], tuple[CreatableTopicConfigs, ...]] = {}
    layers = layers_of(defaults, metadata.image)
    results = []
    async for outcome in unhurried(outcomes):
        configs: tuple[CreatableTopicConfigs, ...] = ()
        if outcome.error is None and call.version >= _CONFIGS_FROM_VERSION:
            # Topics created together mostly have the same configs: describe each kind once.
            key = tuple(sorted(outcome.configs.items()))
            configs = described.get(key) or described.setdefault(key, _configs(outcome, layers))
        results.append(_created(outcome, configs))
    return answer(CreateTopicsResponse, topics=tuple(results))


async def _create(
    metadata: MetadataService, command: CreateTopics, patience: datetime.timedelta
) -> list[CreatedTopic]:
    """In slices, with turns for other requests in between. After the client's timeout no further slice is begun."""
    outcomes: list[CreatedTopic] = []
    earlier = done = 0
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    for each in in_slices(command, _PARTITIONS_AT_ONCE):
        left = deadline - asyncio.get_running_loop().time()
        try:
            if outcomes and left <= 0 < patience.total_seconds():
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the timeout was over before this topic")
            part = replace(each, earlier_partitions=earlier)
            outcomes += await submit_within(metadata, part, datetime.timedelta(seconds=left))
        except KafkaError as error:
            names = dict.fromkeys(topic.name for topic in each.topics)
            outcomes += [CreatedTopic(name, error=error) for name in names]
        created = sum(outcome.partitions for outcome in outcomes[done:] if outcome.error is None)
        earlier, done = earlier + created, len(outcomes)
        await others_first()
    return outcomes


def new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((each.partition_index, tuple(each.broker_ids)) for each in topic.assignments),
        tuple((each.name, each.value) for each in topic.configs),
    )


def _created(outcome: CreatedTopic, configs: tuple[CreatableTopicConfigs, ...]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
        num_partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
        configs=configs,
    )


def _configs(outcome: CreatedTopic, layers: BrokerLayers) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=config.definition.name,
            value=None if config.definition.sensitive else config.value,
            read_only=config.read_only,
            config_source=config.source,
            is_sensitive=config.definition.sensitive,
        )
        for config in describe_topic(outcome.configs, layers)
    )


async def create_partitions(
    metadata: MetadataService, defaults: Defaults, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    """Adds partitions to existing topics."""
    outcomes: list[IncreaseOutcome] = []
    earlier = 0
    image = metadata.image
    slices = slices_of(
        map(_increase, request.topics),
        _PARTITIONS_AT_ONCE,
        lambda increase: increase.topic,
        # Refused ones take time too.
        lambda increase: max(_added(image, increase), 1),
    )
    for some in slices:
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
        CreatePartitionsResponse, results=tuple([_grown(each) async for each in unhurried(outcomes)])
    )


def _added(before: MetadataImage, increase: PartitionIncrease) -> int:
    topic = before.topic(increase.topic)
    return 0 if topic is None else max(increase.count - len(topic.partitions), 0)


def _increase(topic: Any) -> PartitionIncrease:
    # Some clients write "no assignment" as an empty array instead of null.
    assignments = tuple(tuple(each.broker_ids) for each in topic.assignments) if topic.assignments else None
    return PartitionIncrease(topic.name, topic.count, assignments)


def _grown(outcome: IncreaseOutcome) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=outcome.topic, error_code=code_of(outcome.error), error_message=message_of(outcome.error)
    )


_NULL_ID = uuid.UUID(int=0)


async def delete_topics(
    metadata: MetadataService, request: DeleteTopicsRequest, call: Call
) -> DeleteTopicsResponse:
    """Deletes topics by name or by id."""
    refs = tuple(
        TopicRef(topic.name, topic.topic_id if topic.topic_id != _NULL_ID else None)
        for topic in request.topics
    )
    outcomes: list[DeletedTopic] = []
    image = metadata.image
    for some in slices_of(refs, _PARTITIONS_AT_ONCE, lambda ref: ref, lambda ref: _size(image, ref)):
        try:
            outcomes += await submit_within(metadata, DeleteTopics(some), request.timeout)
        except KafkaError as error:
            outcomes += [DeletedTopic(ref.name, ref.topic_id, error) for ref in dict.fromkeys(some)]
        await others_first()
    return answer(
        DeleteTopicsResponse, responses=tuple([_deleted(each) async for each in unhurried(outcomes)])
    )


def _size(image: MetadataImage, ref: TopicRef) -> int:
    topic = image.topic(ref.name) if ref.name else image.topic_by_id(ref.topic_id or _NULL_ID)
    return 1 if topic is None else len(topic.partitions)


def _deleted(outcome: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=code_of(outcome.error),
        error_message=message_of(outcome.error),
    )
