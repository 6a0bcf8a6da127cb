"""/consume: a stream of events, or one answer with the available messages.

A client that accepts `application/json` or frames gets one answer. Others get a stream, which ends only with the
client, the topic or the gateway.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from millstream.config.proxy_settings import ProxySettings
from millstream.doors import Caller, Metadata, MetadataImage, Place, QuotaKind, TopicImage
from millstream.gateway.bodies import FRAMES
from millstream.gateway.events import HEARTBEAT, as_event, as_frame, as_json
from millstream.gateway.hub import Delivered, Taker
from millstream.gateway.hubs import Hubs
from millstream.gateway.metrics import GatewayMetrics
from millstream.gateway.places import BadId, parse_id
from millstream.gateway.problems import HttpQuotas, problem_of
from millstream.gateway.queries import partition_in, query_of, whole_number
from millstream.gateway.topics import Topics
from millstream.http.messages import JSON, Answer, Problem, Request, Response, Sink, Stream, json_response
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.protocol.key_hash import partition_of

_log = get_logger("millstream.gateway")

_ROOM = 500
"""Messages that wait in the gateway for one stream."""
_PERMITS = 500
"""Unsettled messages that a stream may hold. When it ends they are delivered again, and that delivery counts."""
_EVENTS_AT_ONCE = 50
_MAX_POLL = 1_000
_MAX_POLL_S = 55
_LEAST_POLL_S = 0.5
"""Minimum wait: even without waiting for new messages, brokers need time to answer."""
_GATHER_S = 0.002
"""Wait after the first answer: other partitions answer a moment later."""
_MAX_GROUP_BYTES = 255


class Consume:
    def __init__(
        self,
        hubs: Hubs,
        topics: Topics,
        metadata: Metadata,
        quotas: HttpQuotas,
        settings: ProxySettings,
        metrics: GatewayMetrics,
    ) -> None:
        self._hubs = hubs
        self._topics = topics
        self._metadata = metadata
        self._quotas = quotas
        self._settings = settings
        self._metrics = metrics
        self._growing: dict[Taker, Callable[[TopicImage], None]] = {}
        self._unwatch: Callable[[], None] | None = None

    def start(self) -> None:
        self._unwatch = self._metadata.watch(self._changed)

    def stop(self) -> None:
        if self._unwatch is not None:
            self._unwatch()

    async def handle(self, request: Request, caller: Caller) -> Answer:
        query = query_of(request)
        topic, group = query.get("topic", ""), query.get("group", "")
        if self._settings.legacy and not (topic and group and query.get("partition")):
            raise Problem(400, "topic, partition and group required")
        if not topic:
            raise Problem(400, "topic required")
        check_group(group)
        partition = partition_in(query, "bad partition" if self._settings.legacy else "invalid partition")
        permits = whole_number(query, "permits", _PERMITS, least=1, most=100_000)
        poll_limit = whole_number(query, "limit", 100, least=1, most=_MAX_POLL)
        poll_wait_s = whole_number(query, "wait", 20, most=_MAX_POLL_S)
        self._quotas.check(caller, QuotaKind.FETCH)
        image = await self._topics.find(caller, topic)
        if partition is None and query.get("key"):
            partition = partition_of(query["key"].encode(), len(image.partitions))
        if partition is not None and partition >= len(image.partitions):
            raise Problem(400, "bad partition" if self._settings.legacy else "invalid partition")
        places = [Place(topic, partition)] if partition is not None else _places(image)
        accept = request.header("accept")
        if FRAMES in accept or (JSON in accept and "text/event-stream" not in accept):
            return await self._poll(caller, group, places, poll_limit, poll_wait_s, frames=FRAMES in accept)
        return self._stream(request, caller, group, places, permits, follows=partition is None)

    def _stream(
        self, request: Request, caller: Caller, group: str, places: Sequence[Place], permits: int,
        follows: bool,
    ) -> Stream:  # fmt: skip
        last_seen = request.header("last-event-id")

        async def run(sink: Sink) -> None:
            taker = self._hubs.new_taker(_ROOM, permits)
            with contextlib.suppress(BadId):
                if last_seen:
                    self._hubs.resume(parse_id(last_seen), taker)
            if follows:
                self._growing[taker] = lambda topic: self._join(taker, caller, group, _places(topic))
            self._metrics.streams.value += 1
            self._join(taker, caller, group, places)
            try:
                await sink.send(b": connected\n\n")
                while True:
                    some = await taker.take(_EVENTS_AT_ONCE)
                    self._count(caller, some)
                    await sink.send(b"".join(as_event(_json(each)) for each in some))
            except KafkaError as error:
                _log.info("stream ended", group=group, error=error.code.name)
                problem = problem_of(error)
                await sink.send(b"event: error\ndata: %b\n\n" % problem.response().body)
            finally:
                self._metrics.streams.value -= 1
                self._growing.pop(taker, None)
                self._hubs.leave(taker, releases=True)

        return Stream(run, heartbeat=HEARTBEAT, headers={"x-accel-buffering": "no"})

    async def _poll(
        self, caller: Caller, group: str, places: Sequence[Place], limit: int, wait_s: int,
        *, frames: bool,
    ) -> Response:  # fmt: skip
        taker = self._hubs.new_taker(limit, limit)
        self._join(taker, caller, group, places)
        some: list[Delivered] = []
        is_gone = False
        try:
            async with asyncio.timeout(max(wait_s, _LEAST_POLL_S)):
                some = await taker.take(limit)
                await asyncio.sleep(_GATHER_S)
                some += taker.pop(limit - len(some))
        except TimeoutError:
            pass
        except KafkaError as error:
            raise problem_of(error) from error
        except asyncio.CancelledError:
            is_gone = True
            raise
        finally:
            self._hubs.leave(taker, releases=is_gone or not some)
        self._count(caller, some)
        if frames:
            body = b"".join(
                as_frame(each.id, each.delivery.record, each.delivery.delivery_count) for each in some
            )
            return Response(body, content_type=FRAMES)
        return json_response({"count": len(some), "messages": [_json(each) for each in some]})

    def _count(self, caller: Caller, some: Sequence[Delivered]) -> None:
        self._metrics.delivered.value += len(some)
        size = sum(len(each.delivery.record.value or b"") for each in some)
        self._quotas.charge(caller, QuotaKind.FETCH, size)

    def _changed(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.topics is new.topics:
            return
        for taker, grow in [*self._growing.items()]:
            name = taker.hubs[0].place.topic
            topic = new.topics.get(name)
            if topic is not None and topic is not old.topics.get(name):
                grow(topic)

    def _join(self, taker: Taker, caller: Caller, group: str, places: Sequence[Place]) -> None:
        known = {hub.place for hub in taker.hubs}
        self._hubs.join(taker, caller, group, [place for place in places if place not in known])


def check_group(group: str) -> None:
    if not group:
        raise Problem(400, "group required")
    if len(group.encode()) > _MAX_GROUP_BYTES or not group.isprintable():
        raise Problem(400, "the group's name is too long or cannot be printed")


def _places(topic: TopicImage) -> list[Place]:
    return [Place(topic.name, partition.index) for partition in topic.partitions]


def _json(each: Delivered) -> dict[str, object]:
    place = each.id.place
    return as_json(
        str(each.id), place.topic, place.partition, each.delivery.record, each.delivery.delivery_count
    )
