"""Which permissions a request needs, by API, as Kafka asks for them.

A function gets the request and a way to find a topic's name by its id, and returns the permissions that the caller must
have. Not done: lists (all topics, all groups) without what the caller may not see.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from millstream.doors import access
from millstream.doors.access import Operation, Permission, Resource
from millstream.protocol.codec import Message
from millstream.protocol.fetch import FetchRequest
from millstream.protocol.metadata import MetadataRequest
from millstream.protocol.offset_commit import CommitRequest
from millstream.protocol.produce import ProduceRequest

if TYPE_CHECKING:
    from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequest

TopicName = Callable[[UUID], str | None]
Needs = Callable[[Any, TopicName], Iterable[Permission]]

_COORDINATED = {0: Resource.GROUP, 1: Resource.TRANSACTIONAL_ID}
_CONFIGURED = {2: Resource.TOPIC, 32: Resource.GROUP}


def nothing(_request: Message, _name: TopicName) -> Iterable[Permission]:
    return ()


def cluster(operation: Operation) -> Needs:
    needed = (Permission(operation, Resource.CLUSTER),)
    return lambda _request, _name: needed


def topics(operation: Operation, field: str = "topics", name: str = "name") -> Needs:
    """The operation on the topic of each element of an array: a name, or an object with a name or an id."""

    def needs(request: Message, name_of: TopicName) -> Iterator[Permission]:
        for each in getattr(request, field) or ():
            topic = each if isinstance(each, str) else getattr(each, name, None)
            if topic is None:
                topic = name_of(each.topic_id)
            if topic is not None:
                yield Permission(operation, Resource.TOPIC, topic)

    return needs


def group(operation: Operation) -> Needs:
    return lambda request, _name: (Permission(operation, Resource.GROUP, request.group_id),)


def transactional_ids(request: "DescribeTransactionsRequest", _name: TopicName) -> Iterable[Permission]:
    return (
        Permission(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each) for each in request.transactional_ids
    )


def groups(operation: Operation, field: str = "groups") -> Needs:
    return lambda request, _name: (
        Permission(operation, Resource.GROUP, each) for each in getattr(request, field)
    )


def both(first: Needs, second: Needs) -> Needs:
    return lambda request, name: (*first(request, name), *second(request, name))


def _named(topic: str | bytes | None, name: TopicName) -> str | None:
    """The name of a topic that hand-written messages give by name or by the bytes of its id."""
    return name(UUID(bytes=topic)) if isinstance(topic, bytes) else topic


def _of_places(operation: Operation) -> Needs:
    def needs(request: Message, name: TopicName) -> Iterator[Permission]:
        for topic, *_ in request.topics:
            named = _named(topic, name)
            if named is not None:
                yield Permission(operation, Resource.TOPIC, named)

    return needs


def share_offsets(request: "DescribeShareGroupOffsetsRequest", _name: TopicName) -> Iterator[Permission]:
    for each in request.groups:
        yield Permission(Operation.DESCRIBE, Resource.GROUP, each.group_id)
        for topic in each.topics or ():
            yield Permission(Operation.DESCRIBE, Resource.TOPIC, topic.topic_name)


def produce(request: ProduceRequest, name: TopicName) -> Iterator[Permission]:
    if request.transactional_id is not None:
        yield Permission(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id)
    yield from _of_places(Operation.WRITE)(request, name)


def fetch(request: FetchRequest, name: TopicName) -> Iterable[Permission]:
    if request.replica_id >= 0:
        return (Permission(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
    return _of_places(Operation.READ)(request, name)


def metadata(request: MetadataRequest, name: TopicName) -> Iterator[Permission]:
    for topic in request.topics or ():
        named = topic.name if topic.name is not None else name(UUID(bytes=topic.topic_id))
        if named is not None:
            yield Permission(Operation.DESCRIBE, Resource.TOPIC, named)


def offset_commit(request: CommitRequest, name: TopicName) -> Iterator[Permission]:
    yield Permission(Operation.READ, Resource.GROUP, request.group_id)
    yield from _of_places(Operation.READ)(request, name)


def offset_fetch(request: "OffsetFetchRequest", name: TopicName) -> Iterator[Permission]:
    described = topics(Operation.DESCRIBE)
    for each in request.groups:
        yield Permission(Operation.DESCRIBE, Resource.GROUP, each.group_id)
        yield from described(each, name)


def find_coordinator(request: "FindCoordinatorRequest", _name: TopicName) -> Iterator[Permission]:
    resource = _COORDINATED.get(request.key_type)
    for key in request.coordinator_keys:
        yield (
            Permission(Operation.CLUSTER_ACTION, Resource.CLUSTER)
            if resource is None
            else Permission(Operation.DESCRIBE, resource, key)
        )


def init_producer_id(request: "InitProducerIdRequest", _name: TopicName) -> Iterable[Permission]:
    if request.transactional_id is not None:
        return (Permission(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id),)
    return (Permission(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),)


def configs(operation: Operation) -> Needs:
    def needs(request: Message, _name: TopicName) -> Iterator[Permission]:
        for each in request.resources:
            resource = _CONFIGURED.get(each.resource_type)
            yield (
                Permission(operation, Resource.CLUSTER)
                if resource is None
                else Permission(operation, resource, each.resource_name)
            )

    return needs


class AllowAll(access.AllowAll):
    """The authoriser of a node without access rules: it allows everything."""

    def check_request(self, _caller: object, _needs: Needs, _request: Message, _name: TopicName) -> None: ...


NOT_REQUESTED = -(2**31)
_OF_ALL = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)


def _bits(*operations: Operation) -> int:
    """Operations as the bits that describe calls return; without access rules, all operations of a resource."""
    return sum(1 << operation for operation in operations)


CLUSTER_OPERATIONS = _bits(
    *_OF_ALL, Operation.CREATE, Operation.ALTER, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
)
TOPIC_OPERATIONS = _bits(
    *_OF_ALL, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER
)
GROUP_OPERATIONS = _bits(*_OF_ALL, Operation.READ, Operation.DELETE)
