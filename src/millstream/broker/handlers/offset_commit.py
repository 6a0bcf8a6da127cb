"""OffsetCommit: topics by name up to version 9, by id from version 10 on.

A connection may have many commits under way: each is decided when it arrives and answered when it is durable.
"""

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.coordinator.groups.replies import Committed
from millstream.coordinator.groups.requests import CommitOffsets, OffsetToCommit
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.offset_commit import (
    CommitRequest,
    TopicOutcome,
    decode_offset_commit,
    encode_offset_commit_reply,
)

if TYPE_CHECKING:
    from millstream.broker.node import Broker

log = get_logger("millstream.broker")

_MEMBER_EPOCHS_FROM = 9
# Above this a request is decoded in a thread: a million offsets would hold everybody else up for seconds.
_LARGE_BYTES = 64 * 1024


def serve(broker: "Broker", context: RequestContext, request: memoryview, position: int) -> None:
    if len(request) > _LARGE_BYTES:
        context.connection.block()
        work = _serve_large(broker, context, context.reply_later(), bytes(request), position)
        broker.spawn(work, "large offset commit")
        return
    _commit(broker, context.reply_later(), decode_offset_commit(request, position, context.version))


async def _serve_large(
    broker: "Broker", context: RequestContext, reply: LaterReply, request: bytes, position: int
) -> None:
    version = context.version
    most = broker.groups.most_offsets_in_a_commit

    def decode_or_refuse() -> CommitRequest | bytes:
        decoded = decode_offset_commit(memoryview(request), position, version)
        if sum(len(topic.partitions) for topic in decoded.topics) <= most:
            return decoded
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return encode_offset_commit_reply(
            version,
            [TopicOutcome(t.topic, [(p.partition, code) for p in t.partitions]) for t in decoded.topics],
        )

    try:
        found = await broker.long_work.apart(decode_or_refuse)
        if isinstance(found, bytes):
            broker.dispatcher.count_error(context.api, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            reply.complete([found])
        else:
            _commit(broker, reply, found)
    except KafkaError as error:
        context.connection.refuse(f"offset_commit: {error.message}")
    except BaseException:
        # There will be no reply: without this the client would wait for it for ever.
        context.connection.close()
        raise
    finally:
        context.connection.unblock()


def _commit(broker: "Broker", reply: LaterReply, request: CommitRequest) -> None:
    pending = _PendingCommit(broker, reply, request)
    if not pending.offsets:
        pending.answer(())
        return
    commit = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_or_epoch=request.generation_or_epoch,
        offsets=tuple(pending.offsets),
        instance_id=request.instance_id,
        retention_ms=request.retention_ms,
        knows_member_epochs=reply.context.version >= _MEMBER_EPOCHS_FROM,
    )
    try:
        broker.groups.decide(request.group_id, commit).add_done_callback(pending.decided)
    except KafkaError as error:
        pending.refuse(error.code)


class _PendingCommit:
    """What was asked for, and the offsets of it that the coordinator is given."""

    __slots__ = ("_broker", "_reply", "_request", "_topics", "offsets")

    def __init__(self, broker: "Broker", reply: LaterReply, request: CommitRequest) -> None:
        self._broker = broker
        self._reply = reply
        self._request = request
        image = broker.metadata.image
        self._topics = [_find(image, topic.topic) for topic in request.topics]
        self.offsets = [
            OffsetToCommit(found.name, *partition)
            for topic, found in zip(request.topics, self._topics, strict=True)
            if found is not None
            for partition in topic.partitions
            if 0 <= partition.partition < len(found.partitions)
        ]

    def decided(self, outcome: "asyncio.Future[Committed]") -> None:
        if outcome.cancelled():
            self.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        error = outcome.exception()
        if isinstance(error, KafkaError):
            self.refuse(error.code)
            return
        if error is not None:
            log.error("offset commit failed", exc_info=error)
            self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self.answer(outcome.result().errors)

    def refuse(self, code: ErrorCode) -> None:
        self.answer((code,) * len(self.offsets))

    def answer(self, codes: tuple[ErrorCode, ...]) -> None:
        """`codes` are those of `offsets`; the others were never asked for."""
        context = self._reply.context
        for code in set(codes) - {ErrorCode.NONE}:
            self._broker.dispatcher.count_error(context.api, code)
        following = iter(codes)
        outcomes = []
        for topic, found in zip(self._request.topics, self._topics, strict=True):
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if found is None and isinstance(topic.topic, bytes):
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            count = len(found.partitions) if found is not None else 0
            partitions = [
                (each.partition, next(following) if 0 <= each.partition < count else unknown)
                for each in topic.partitions
            ]
            outcomes.append(TopicOutcome(topic.topic, partitions))
        self._reply.complete([encode_offset_commit_reply(context.version, outcomes)])


def _find(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    return image.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topic(topic)
