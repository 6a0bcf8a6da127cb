"""/admin/queues: the functions of `millstream queue` over HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from millstream.doors import (
    Authoriser,
    Caller,
    LogRead,
    Metadata,
    Operation,
    Permission,
    Place,
    Queues,
    Resource,
    TopicImage,
)
from millstream.doors.commands import AlterConfigs, ConfigAlteration, ConfigResource
from millstream.gateway.admin import body_of, check, config_changes
from millstream.gateway.consume import check_group
from millstream.gateway.events import as_json
from millstream.gateway.places import MessageId
from millstream.gateway.queries import query_of, whole_number
from millstream.gateway.redrive import Redrive
from millstream.gateway.topics import Topics
from millstream.http.messages import Problem, Request, Response, json_response
from millstream.protocol.queue_call import LookAtQueues, PeekAtQueue, Peeked, PurgeQueue

Handler = Callable[[Request, Caller], Awaitable[Response]]

_MOST_PEEKED = 1_000
_MOST_REDRIVEN = 10_000


class RedriveBody(msgspec.Struct, forbid_unknown_fields=True):
    """`group` remembers what was redriven. The default is that of `millstream queue redrive`."""

    count: int = 1_000
    group: str = "millstream-redrive"


class AdminQueues:
    def __init__(
        self,
        queues: Queues,
        metadata: Metadata,
        authoriser: Authoriser,
        topics: Topics,
        redrive: Redrive,
        now_ms: Callable[[], int],
    ) -> None:
        self._queues = queues
        self._metadata = metadata
        self._authoriser = authoriser
        self._topics = topics
        self._redrive = redrive
        self._now_ms = now_ms

    def routes(self) -> dict[str, Handler]:
        return {
            "GET /admin/queues": self._list,
            "GET /admin/queues/{group}": self._describe,
            "GET /admin/queues/{group}/configs": self._configs,
            "PATCH /admin/queues/{group}/configs": self._change_configs,
            "GET /admin/queues/{group}/messages": self._peek,
            "DELETE /admin/queues/{group}/messages": self._purge,
            "POST /admin/topics/{topic}/redrive": self._redrive_letters,
        }

    async def _list(self, request: Request, caller: Caller) -> Response:
        query = query_of(request)
        found = await self._rows(caller, query.get("group", ""), query.get("topic", ""))
        return json_response({"count": len(found), "queues": found})

    async def _describe(self, request: Request, caller: Caller) -> Response:
        group = self._named(request, caller, Operation.DESCRIBE)
        rows = await self._rows(caller, group)
        configs = self._metadata.image.group_configs.get(group)
        if not rows and configs is None:
            raise Problem(404, "unknown group: it has no settings and no queues")
        return json_response({"group": group, "configs": dict(configs or {}), "queues": rows})

    async def _rows(self, caller: Caller, group: str, topic: str = "") -> list[dict[str, Any]]:
        now = self._now_ms()
        found = []
        for row in (await self._queues.look(caller, LookAtQueues(group, topic))).queues:
            shown = msgspec.structs.asdict(row)
            oldest_ms = shown.pop("oldest_ms")
            shown["oldest_s"] = max(now - oldest_ms, 0) / 1000 if oldest_ms >= 0 else None
            found.append(shown)
        return found

    async def _configs(self, request: Request, caller: Caller) -> Response:
        group = self._named(request, caller, Operation.DESCRIBE_CONFIGS)
        return self._configs_of(group)

    async def _change_configs(self, request: Request, caller: Caller) -> Response:
        """`{"share.record.lock.duration.ms": "60000"}`; null restores the default."""
        group = self._named(request, caller, Operation.ALTER_CONFIGS)
        alteration = ConfigAlteration(ConfigResource.GROUP, group, config_changes(request))
        (altered,) = await self._metadata.submit(AlterConfigs((alteration,)))
        check(altered.error)
        return self._configs_of(group)

    def _configs_of(self, group: str) -> Response:
        return json_response(
            {"group": group, "configs": dict(self._metadata.image.group_configs.get(group, {}))}
        )

    async def _peek(self, request: Request, caller: Caller) -> Response:
        """The group's unsettled messages."""
        group, place = self._place(request, caller)
        query = query_of(request)
        offset = whole_number(query, "offset", 0, most=2**63 - 1)
        limit = whole_number(query, "limit", 10, least=1, most=_MOST_PEEKED)
        peeked = await self._queues.peek(
            caller, PeekAtQueue(group, place.topic, place.partition, offset, limit)
        )
        found = await asyncio.to_thread(_messages, place, peeked)
        return json_response({"count": len(found), "messages": found})

    async def _purge(self, request: Request, caller: Caller) -> Response:
        """Discard waiting messages of a topic, or of one of its partitions."""
        group = self._named(request, caller, Operation.DELETE)
        topic, only = self._topic(request), whole_number(query_of(request), "partition", -1)
        if only >= len(topic.partitions):
            raise Problem(404, "invalid partition")
        chosen = range(len(topic.partitions)) if only < 0 else [only]
        purged = await asyncio.gather(
            *(self._queues.purge(caller, PurgeQueue(group, topic.name, index)) for index in chosen)
        )
        return json_response(
            {"group": group, "topic": topic.name, "purged": sum(each.messages for each in purged)}
        )

    async def _redrive_letters(self, request: Request, caller: Caller) -> Response:
        body = body_of(request, RedriveBody) if request.body else RedriveBody()
        if not 1 <= body.count <= _MOST_REDRIVEN:
            raise Problem(400, f"bad body: count is from 1 to {_MOST_REDRIVEN}")
        check_group(body.group)
        topic = self._topics.known(request.params["topic"])
        if topic is None:
            raise Problem(404, "unknown topic")
        redriven, stayed = await self._redrive.run(caller, topic, body.group, body.count)
        return json_response({"topic": topic.name, "redriven": redriven, "stayed": stayed})

    def _place(self, request: Request, caller: Caller) -> tuple[str, Place]:
        group, topic = self._named(request, caller, Operation.READ), self._topic(request)
        partition = whole_number(query_of(request), "partition", 0)
        if partition >= len(topic.partitions):
            raise Problem(404, "invalid partition")
        return group, Place(topic.name, partition)

    def _topic(self, request: Request) -> TopicImage:
        name = query_of(request).get("topic", "")
        if not name:
            raise Problem(400, "topic required")
        topic = self._topics.known(name)
        if topic is None:
            raise Problem(404, "unknown topic")
        return topic

    def _named(self, request: Request, caller: Caller, operation: Operation) -> str:
        group = request.params["group"]
        check_group(group)
        self._authoriser.check(caller, Permission(operation, Resource.GROUP, group))
        return group


def _messages(place: Place, peeked: Peeked) -> list[dict[str, Any]]:
    read = LogRead(place, 0, 0, memoryview(peeked.batches), -1, -1, -1)
    records = {record.offset: record for record in read.records()}
    found = []
    for run in peeked.runs:
        for offset in range(run.first, run.last + 1):
            record = records.get(offset)
            if record is not None:
                shown = as_json(
                    str(MessageId(place, offset)), place.topic, place.partition, record, run.count
                )
                found.append({**shown, "state": run.state, "member": run.owner or None})
    return found
