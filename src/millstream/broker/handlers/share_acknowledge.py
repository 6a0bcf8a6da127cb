"""ShareAcknowledge, versions 1 to 2: settle records of a share session; answered when the outcome is durable."""

from array import array
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, cast
from uuid import UUID

from millstream.broker.api.call import LATER, Call
from millstream.broker.shares.acknowledgements import outcomes_in, settlements
from millstream.broker.shares.led_queue import SLICE, LedQueue
from millstream.broker.shares.session_work import Answered, SessionWork, Work
from millstream.broker.shares.sessions import CLOSE, OPEN, Place, Source
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_acknowledge import (
    AcknowledgeAnswer,
    AcknowledgeRequest,
    AcknowledgeSeries,
    AckPartition,
    PartitionOutcome,
    encode_share_acknowledge_reply,
    settled_reply,
)


class ShareAcknowledge:
    def __init__(self, work: SessionWork) -> None:
        self._work = work

    def handle(self, request: AcknowledgeRequest, call: Call) -> Any:
        epoch = request.share_session_epoch
        if not request.group_id or not request.member_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must not be empty")
        if epoch == OPEN:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
        session = self._work.use(
            request.group_id, request.member_id, epoch, cast(Source, call.source), request.topics
        )
        # The usual case has no task of its own: consumers that acknowledge one by one send many of these.
        is_usual = len(request.topics) == 1 and len(request.topics[0].partitions) == 1 and epoch != CLOSE
        if is_usual and session.proxied_for is None:
            topic_id, (partition,) = request.topics[0]
            queue = self._work.shares.opened(session.group_id, topic_id, partition.partition_index)
            is_little = outcomes_in(partition.acknowledgement_batches) <= SLICE
            if queue is not None and queue.is_ready and is_little:
                session.add((topic_id, partition.partition_index))
                self._settle(queue, session.member, partition, call, renewing=request.is_renew_ack)
                return LATER
        work = self._work.begin(session, call, request.topics)
        session.update(request.topics)
        if work.decides_here:
            call.block_later()
        return self._acknowledge(request, work, call)

    def _settle(
        self, queue: LedQueue, member: str, partition: AckPartition, call: Call, *, renewing: bool
    ) -> None:
        slot = call.reply_later()
        place = (queue.key.topic_id, queue.key.partition)
        lock_ms = queue.engine.policy.lock_ms

        def on_stored(error: KafkaError | None) -> None:
            if error is None:
                slot.answer_body([settled_reply(call.version, *place, lock_ms, call.throttle_ms)])
            else:
                refused = Answered(acknowledge_error=error, leader=self._work.leader(place))
                slot.answer(self._answer({place: refused}, lock_ms))

        try:
            if partition.acknowledgement_batches:
                queue.settle(member, settlements(partition.acknowledgement_batches, renewing=renewing))
        except KafkaError as error:
            on_stored(error)
        else:
            queue.when_stored(on_stored)

    def handle_series(self, series: AcknowledgeSeries, call: Call) -> int:
        """Settle consecutive requests of one session together, with one buffer of replies."""
        request = series.request
        topic_id, (partition,) = request.topics[0]
        index = partition.partition_index
        session = self._work.sessions.find(request.group_id or "", request.member_id or "")
        if session is None or session.proxied_for is not None:
            return 0
        queue = self._work.shares.opened(session.group_id, topic_id, index)
        if queue is None or not queue.is_ready:
            return 0
        count = session.use_next(series.epochs)
        if not count:
            return 0
        session.add((topic_id, index))
        numbers = array("i", series.numbers[:count])
        refused = queue.accept_each(session.member, series.firsts[:count], series.lasts[:count])
        self._answer_series(queue, call, numbers, refused)
        return count

    def _answer_series(
        self, queue: LedQueue, call: Call, numbers: Sequence[int], refused: Mapping[int, KafkaError]
    ) -> None:
        slot = call.reply_later()
        place = (queue.key.topic_id, queue.key.partition)
        lock_ms = queue.engine.policy.lock_ms
        version, throttle_ms = call.version, call.throttle_ms

        def failure(error: KafkaError) -> bytes:
            answered = {place: Answered(acknowledge_error=error, leader=self._work.leader(place))}
            return encode_share_acknowledge_reply(version, self._answer(answered, lock_ms), throttle_ms)

        def on_stored(error: KafkaError | None) -> None:
            done = settled_reply(version, *place, lock_ms, throttle_ms) if error is None else failure(error)
            if refused:
                each = [failure(refused[at]) if at in refused else done for at in range(len(numbers))]
                slot.answer_series(numbers, each)
            else:
                slot.answer_series(numbers, repeat(done))

        queue.when_stored(on_stored)

    async def _acknowledge(self, request: AcknowledgeRequest, work: Work, call: Call) -> AcknowledgeAnswer:
        try:
            await work.acknowledge(request.topics, renewing=request.is_renew_ack)
            if request.share_session_epoch == CLOSE:
                await work.release()
        finally:
            if work.decides_here:
                call.unblock_later()
        await work.stored()
        return self._answer(work.answered(full=False), work.lock_ms())

    def _answer(self, answered: Mapping[Place, Answered], lock_ms: int) -> AcknowledgeAnswer:
        topics: dict[UUID, list[PartitionOutcome]] = {}
        for (topic_id, index), answer in answered.items():
            refused = answer.acknowledge_error
            outcome = (
                PartitionOutcome(index)
                if refused is None
                else PartitionOutcome(index, refused.code, refused.message, answer.leader)
            )
            topics.setdefault(topic_id, []).append(outcome)
        return AcknowledgeAnswer(
            lock_ms=lock_ms, topics=list(topics.items()), endpoints=list(self._work.endpoints(answered))
        )
