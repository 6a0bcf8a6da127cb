"""ShareFetch, versions 1 and 2: acknowledge, then lock and read records of a share session's partitions.

Batches are sent as they are stored; `AcquiredRecords` names what is the client's. A reply leaves when what it tells is
durable. Where a request acknowledges and finds nothing to read, it is answered at once.
"""

import datetime
from typing import cast
from uuid import UUID

from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.shares.led_queue import Taken, Wanted
from millstream.broker.shares.session_work import Answered, SessionWork, Work
from millstream.broker.shares.sessions import CLOSE, OPEN, Source
from millstream.protocol.errors import ErrorCode, KafkaError

_MILLISECOND = datetime.timedelta(milliseconds=1)
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


class ShareFetch:
    def __init__(self, work: SessionWork) -> None:
        self._work = work

    async def handle(self, request: ShareFetchRequest, call: Call) -> ShareFetchResponse:
        try:
            _check(request)
            source = cast(Source, call.source)
            session = self._work.use(request.group_id, request.member_id, request.share_session_epoch, source)
        except KafkaError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                await self._work.pause(request.max_wait)
            return _refused(error)
        work = self._work.begin(session, call, request.topics)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                work.session.forget((topic.topic_id, index))
        await work.acknowledge(request.topics, renewing=request.is_renew_ack)
        if request.share_session_epoch == CLOSE:
            await work.release()
        elif request.max_records > 0 and request.max_bytes > 0 and not request.is_renew_ack:
            await self._fetch(request, work)
        await work.stored()
        return self._answer(request, work)

    async def _fetch(self, request: ShareFetchRequest, work: Work) -> None:
        wanted = Wanted(
            request.max_records,
            self._work.most_bytes(request.max_bytes),
            whole_batches=request.share_acquire_mode == _BATCH_OPTIMIZED,
        )
        waits = not work.acknowledged and not work.errors
        max_wait_s = request.max_wait.total_seconds() if waits else 0.0
        await work.fetch(wanted, max_wait_s)

    def _answer(self, request: ShareFetchRequest, work: Work) -> ShareFetchResponse:
        topics: dict[UUID, list[PartitionData]] = {}
        full = request.share_session_epoch == OPEN
        answered = work.answered(full=full)
        for (topic_id, index), told in answered.items():
            topics.setdefault(topic_id, []).append(_partition(index, told))
        return answer(
            ShareFetchResponse,
            error_code=ErrorCode.NONE,
            error_message=None,
            acquisition_lock_timeout=work.lock_ms() * _MILLISECOND,
            responses=tuple(
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            node_endpoints=tuple(
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in self._work.endpoints(answered)
            ),
        )


def _check(request: ShareFetchRequest) -> None:
    if not request.group_id or not request.member_id:
        raise _invalid("GroupId and MemberId must not be empty")
    acknowledges = any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    )
    if request.share_session_epoch == OPEN and acknowledges:
        raise _invalid("a session does not begin with acknowledgements")
    if request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        raise _invalid(f"ShareAcquireMode is {request.share_acquire_mode}; use 0 or 1")
    reads = request.max_wait or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and reads:
        raise _invalid(
            "a request that renews reads nothing: MaxWait, MinBytes, MaxBytes, MaxRecords must be 0"
        )


def _partition(index: int, told: Answered) -> PartitionData:
    taken: Taken = told.taken
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE if told.error is None else told.error.code,
        error_message=None if told.error is None else told.error.message,
        acknowledge_error_code=0 if told.acknowledge_error is None else told.acknowledge_error.code,
        acknowledge_error_message=None if told.acknowledge_error is None else told.acknowledge_error.message,
        current_leader=LeaderIdAndEpoch(leader_id=told.leader[0], leader_epoch=told.leader[1]),
        records=b"".join(taken.batches),
        acquired_records=tuple(
            AcquiredRecords(first_offset=each.first, last_offset=each.last, delivery_count=each.count)
            for each in taken.ranges
        ),
    )


def _refused(error: KafkaError) -> ShareFetchResponse:
    return answer(
        ShareFetchResponse,
        error_code=error.code,
        error_message=error.message,
        acquisition_lock_timeout=datetime.timedelta(),
        responses=(),
        node_endpoints=(),
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
