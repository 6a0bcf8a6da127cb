"""OffsetCommit, versions 2 to 10: topics by name up to version 9, by id from version 10 on.

A connection may have many commits under way: each is decided when it arrives and answered when it is durable. Not done:
offsets within transactions.
"""

import asyncio
from typing import Any
from uuid import UUID

from millstream.broker.api.call import LATER, Call, ReplySlot
from millstream.broker.coordinators.groups import Groups
from millstream.cluster.metadata.image import MetadataImage, TopicImage
from millstream.cluster.metadata.service import MetadataService
from millstream.coordinator.groups.replies import Committed
from millstream.coordinator.groups.requests import CommitOffsets, OffsetToCommit
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.offset_commit import CommitRequest, TopicOutcome

log = get_logger("millstream.broker")

_MEMBER_EPOCHS_FROM = 9


class OffsetCommit:
    def __init__(self, groups: Groups, metadata: MetadataService) -> None:
        self._groups = groups
        self._metadata = metadata

    def handle(self, request: CommitRequest, call: Call) -> Any:
        if sum(len(topic.partitions) for topic in request.topics) > self._groups.most_offsets_in_a_commit:
            return _too_many(request, call)
        pending = _PendingCommit(request, call, self._metadata.image)
        if not pending.offsets:
            return pending.outcomes(())
        commit = CommitOffsets(
            group_id=request.group_id,
            member_id=request.member_id,
            generation_or_epoch=request.generation_or_epoch,
            offsets=tuple(pending.offsets),
            instance_id=request.instance_id,
            retention_ms=request.retention_ms,
            knows_member_epochs=call.version >= _MEMBER_EPOCHS_FROM,
        )
        try:
            decision = self._groups.decide(request.group_id, commit)
        except KafkaError as error:
            return pending.outcomes((error.code,) * len(pending.offsets))
        pending.slot = call.reply_later()
        decision.add_done_callback(pending.decided)
        return LATER


def _too_many(request: CommitRequest, call: Call) -> list[TopicOutcome]:
    code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    call.count_error(code)
    return [
        TopicOutcome(each.topic, [(place.partition, code) for place in each.partitions])
        for each in request.topics
    ]


class _PendingCommit:
    """A request, and those of its offsets that are sent to the coordinator."""

    __slots__ = ("_call", "_request", "_topics", "offsets", "slot")

    def __init__(self, request: CommitRequest, call: Call, image: MetadataImage) -> None:
        self._call = call
        self._request = request
        self.slot: ReplySlot
        """Where the coordinator's answer goes."""
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
            self._refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        error = outcome.exception()
        if isinstance(error, KafkaError):
            self._refuse(error.code)
            return
        if error is not None:
            log.error("offset commit failed", exc_info=error)
            self._refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._answer(outcome.result().errors)

    def _refuse(self, code: ErrorCode) -> None:
        self._answer((code,) * len(self.offsets))

    def _answer(self, codes: tuple[ErrorCode, ...]) -> None:
        self.slot.answer(self.outcomes(codes))

    def outcomes(self, codes: tuple[ErrorCode, ...]) -> list[TopicOutcome]:
        """`codes` are the coordinator's, for `offsets`; other offsets were refused before."""
        if any(codes):
            for code in set(codes) - {ErrorCode.NONE}:
                self._call.count_error(code)
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
        return outcomes


def _find(image: MetadataImage, topic: str | bytes) -> TopicImage | None:
    return image.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topic(topic)
