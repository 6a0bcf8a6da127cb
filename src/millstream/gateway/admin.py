"""/admin: topics and their settings, brokers, reassignments and the ring, as JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from millstream.config.proxy_settings import ProxySettings
from millstream.doors import (
    Authoriser,
    Caller,
    ClusterView,
    Metadata,
    NewTopic,
    Operation,
    PartitionImage,
    Permission,
    Resource,
    TopicImage,
)
from millstream.doors.commands import (
    AlterConfigs,
    AlterReassignments,
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    CreatePartitions,
    DeleteTopics,
    PartitionIncrease,
    Reassignment,
    TopicRef,
)
from millstream.gateway.problems import problem_of
from millstream.gateway.queries import query_of, whole_number
from millstream.gateway.ring import cluster_virtual_nodes, preview
from millstream.gateway.topics import Topics
from millstream.http.messages import Problem, Request, Response, json_response
from millstream.protocol.errors import KafkaError

Handler = Callable[[Request, Caller], Awaitable[Response]]
Body = TypeVar("Body")

_MOST = 10_000


class CreateTopicBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int | None = None
    replication_factor: int = -1
    configs: dict[str, str] = {}


class PartitionsBody(msgspec.Struct, forbid_unknown_fields=True):
    count: int


class ReassignmentBody(msgspec.Struct, forbid_unknown_fields=True):
    """Without `replicas`, cancels a reassignment under way."""

    topic: str
    partition: int
    replicas: list[int] | None = None


class Admin:
    def __init__(
        self,
        metadata: Metadata,
        view: ClusterView,
        authoriser: Authoriser,
        topics: Topics,
        settings: ProxySettings,
    ) -> None:
        self._metadata = metadata
        self._view = view
        self._authoriser = authoriser
        self._topics = topics
        self._settings = settings

    def routes(self) -> dict[str, Handler]:
        return {
            "GET /admin/brokers": self._brokers,
            "GET /admin/topics": self._list_topics,
            "POST /admin/topics": self._create_topic,
            "GET /admin/topics/{topic}": self._describe_topic,
            "DELETE /admin/topics/{topic}": self._delete_topic,
            "POST /admin/topics/{topic}/partitions": self._add_partitions,
            "GET /admin/topics/{topic}/configs": self._configs,
            "PATCH /admin/topics/{topic}/configs": self._change_configs,
            "GET /admin/reassignments": self._reassignments,
            "POST /admin/reassignments": self._reassign,
            "GET /admin/ring": self._ring,
        }

    async def _brokers(self, _request: Request, caller: Caller) -> Response:
        self._allow(caller, Operation.DESCRIBE, Resource.CLUSTER)
        taking_part = {broker.broker_id for broker in self._view.brokers()}
        brokers = [
            {
                "id": broker.broker_id,
                "address": f"{broker.endpoints[0].host}:{broker.endpoints[0].port}"
                if broker.endpoints
                else None,
                "rack": broker.rack,
                "is_healthy": broker.broker_id in taking_part,
                "is_fenced": broker.is_fenced,
                "is_shutting_down": broker.is_shutting_down,
            }
            for _, broker in sorted(self._metadata.image.brokers.items())
        ]
        return json_response({"count": len(brokers), "brokers": brokers})

    async def _list_topics(self, _request: Request, caller: Caller) -> Response:
        def listed() -> Response:
            found = [
                {"name": name, "partitions": len(topic.partitions)}
                for name, topic in self._topics.visible(caller).items()
            ]
            return json_response({"count": len(found), "topics": found})

        return await asyncio.to_thread(listed)

    async def _create_topic(self, request: Request, caller: Caller) -> Response:
        body = body_of(request, CreateTopicBody)
        self._allow(caller, Operation.CREATE, Resource.TOPIC, body.name)
        partitions = self._settings.max_partitions if body.partitions is None else body.partitions
        new = NewTopic(body.name, partitions, body.replication_factor, configs=tuple(body.configs.items()))
        (created,) = await self._metadata.create_topics(caller, [new])
        if created.error is not None:
            raise _refused(created.error)
        answer = {
            "name": created.name,
            "partitions": created.partitions,
            "replication_factor": created.replication_factor,
        }
        return json_response(answer, 201)

    async def _describe_topic(self, request: Request, caller: Caller) -> Response:
        topic = self._topic(request, caller, Operation.DESCRIBE)

        def described() -> Response:
            return json_response(
                {
                    "name": topic.name,
                    "id": str(topic.topic_id),
                    "configs": dict(topic.configs),
                    "partitions": [_partition(each) for each in topic.partitions],
                }
            )

        return await asyncio.to_thread(described)

    async def _delete_topic(self, request: Request, caller: Caller) -> Response:
        topic = self._topic(request, caller, Operation.DELETE)
        (deleted,) = await self._metadata.submit(DeleteTopics((TopicRef(topic.name),)))
        check(deleted.error)
        return Response(b"", 204)

    async def _add_partitions(self, request: Request, caller: Caller) -> Response:
        topic = self._topic(request, caller, Operation.ALTER)
        count = body_of(request, PartitionsBody).count
        (grown,) = await self._metadata.submit(CreatePartitions((PartitionIncrease(topic.name, count),)))
        check(grown.error)
        return json_response({"name": topic.name, "partitions": count})

    async def _configs(self, request: Request, caller: Caller) -> Response:
        topic = self._topic(request, caller, Operation.DESCRIBE_CONFIGS)
        return json_response({"name": topic.name, "configs": dict(topic.configs)})

    async def _change_configs(self, request: Request, caller: Caller) -> Response:
        """`{"retention.ms": "1000", "segment.ms": null}`; null restores the default."""
        topic = self._topic(request, caller, Operation.ALTER_CONFIGS)
        alteration = ConfigAlteration(ConfigResource.TOPIC, topic.name, config_changes(request))
        (altered,) = await self._metadata.submit(AlterConfigs((alteration,)))
        check(altered.error)
        now = self._topics.known(topic.name)
        return json_response({"name": topic.name, "configs": dict(now.configs) if now else {}})

    async def _reassignments(self, _request: Request, caller: Caller) -> Response:
        self._allow(caller, Operation.DESCRIBE, Resource.CLUSTER)
        topics = self._topics.visible(caller)

        def listed() -> Response:
            found = [
                {"topic": name, **_partition(each), "adding": each.adding, "removing": each.removing}
                for name, topic in topics.items()
                for each in topic.partitions
                if each.adding or each.removing
            ]
            return json_response({"count": len(found), "reassignments": found})

        return await asyncio.to_thread(listed)

    async def _reassign(self, request: Request, caller: Caller) -> Response:
        self._allow(caller, Operation.ALTER, Resource.CLUSTER)
        wanted = body_of(request, list[ReassignmentBody])
        if not 0 < len(wanted) <= _MOST:
            raise Problem(400, f"bad body: 1 to {_MOST} partitions")
        changes = [
            Reassignment(each.topic, each.partition, None if each.replicas is None else tuple(each.replicas))
            for each in wanted
        ]
        outcomes = await self._metadata.submit(AlterReassignments(tuple(changes)))
        errors = [
            {"topic": each.topic, "partition": each.index, "error": str(each.error)}
            for each in outcomes
            if each.error is not None
        ]
        found = {"accepted": len(outcomes) - len(errors), "errors": errors}
        if errors:
            return json_response({"error": errors[0]["error"], **found}, 400)
        return json_response(found, 202)

    async def _ring(self, request: Request, caller: Caller) -> Response:
        """`?joins=4` or `?leaves=2`: the partitions that would move if that broker joined or left."""
        self._allow(caller, Operation.DESCRIBE, Resource.CLUSTER)
        query, settings = query_of(request), self._settings
        partitions = whole_number(query, "partitions", settings.max_partitions, least=1, most=_MOST)
        virtual_nodes = whole_number(query, "virtual_nodes", settings.virtual_nodes, least=1, most=1_000)
        joins = whole_number(query, "joins", -1)
        leaves = whole_number(query, "leaves", -1)
        brokers = sorted(self._metadata.image.brokers)

        def previewed() -> dict[str, Any]:
            return preview(
                brokers, partitions=partitions, virtual_nodes=virtual_nodes,
                joins=joins if joins >= 0 else None, leaves=leaves if leaves >= 0 else None,
            )  # fmt: skip

        found = await asyncio.to_thread(previewed)
        found["cluster_virtual_nodes"] = placed_by = await cluster_virtual_nodes(self._metadata)
        if placed_by not in {None, virtual_nodes}:
            found["warning"] = (
                f"the cluster places with {placed_by} virtual nodes a broker, this preview with {virtual_nodes}"
            )
        return json_response(found)

    def _topic(self, request: Request, caller: Caller, operation: Operation) -> TopicImage:
        name = request.params["topic"]
        self._allow(caller, operation, Resource.TOPIC, name)
        found = self._topics.known(name)
        if found is None:
            raise Problem(404, "unknown topic")
        return found

    def _allow(
        self, caller: Caller, operation: Operation, resource: Resource, name: str = "kafka-cluster"
    ) -> None:
        self._authoriser.check(caller, Permission(operation, resource, name))


def _partition(each: PartitionImage) -> Mapping[str, object]:
    return {
        "partition": each.index,
        "leader": each.leader if each.leader >= 0 else None,
        "replicas": list(each.replicas),
        "in_sync": list(each.isr),
    }


def body_of(request: Request, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"bad body: {error}") from None


def config_changes(request: Request) -> tuple[ConfigChange, ...]:
    given = body_of(request, dict[str, str | None])
    return tuple(
        ConfigChange(key, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for key, value in given.items()
    )


def check(error: KafkaError | None) -> None:
    if error is not None:
        raise _refused(error)


def _refused(error: KafkaError) -> Problem:
    """Administrators get the cluster's own error message."""
    problem = problem_of(error)
    return Problem(problem.status, str(error) or str(problem), problem.headers)
