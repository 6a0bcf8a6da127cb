"""ShareFetch, versions 1 to 2: acknowledge, then lock and read records of a share session's partitions.

Batches are sent as they are stored; `AcquiredRecords` names the records that the client has locked. A reply is sent
when the locks and settlements that it reports are durable. A request that acknowledges and finds nothing to read is
answered at once. Not done: aborted transactions (there are none, so `share.isolation.level` makes no difference).
"""

from typing import Any, cast
from uuid import UUID

from millstream.broker.api.call import LATER, Call
from millstream.broker.shares.direct_fetch import DirectFetch
from millstream.broker.shares.session_work import Answered, SessionWork, Work
from millstream.broker.shares.sessions import CLOSE, OPEN, Source
from millstream.broker.shares.taken import Wanted
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_fetch import FetchedShare, ShareFetchAnswer, ShareFetchRequest

_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


class ShareFetch:
    def __init__(self, work: SessionWork) -> None:
        self._work = work

    def handle(self, request: ShareFetchRequest, call: Call) -> Any:
        group_id, member, epoch = _check(request), request.member_id or "", request.share_session_epoch
        try:
            session = self._work.use(group_id, member, epoch, cast(Source, call.source), request.topics)
        except KafkaError as error:
            if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                return self._refuse_later(request, error)
            raise
        work = self._work.begin(session, call, request.topics)
        session.update(request.topics, request.forgotten)
        wanted = None
        if epoch != CLOSE and request.max_records > 0 and request.max_bytes > 0 and not request.is_renew_ack:
            wanted = Wanted(
                request.max_records,
                self._work.most_bytes(request.max_bytes),
                whole_batches=request.share_acquire_mode == _BATCH_OPTIMIZED,
            )
        if epoch != CLOSE and work.settle_here(request.topics, renewing=request.is_renew_ack):
            # The usual case has no task of its own.
            fetch = DirectFetch(work, call, lambda: _answer(request, work, self._work))
            fetch.begin(wanted, _max_wait_s(request, work))
            return LATER
        if work.decides_here:
            call.block_later()
        return self._fetch(request, work, wanted, call)

    async def _fetch(
        self, request: ShareFetchRequest, work: Work, wanted: Wanted | None, call: Call
    ) -> ShareFetchAnswer:
        try:
            await work.acknowledge(request.topics, renewing=request.is_renew_ack)
            if request.share_session_epoch == CLOSE:
                await work.release()
        finally:
            if work.decides_here:
                call.unblock_later()
        if wanted is not None:
            with call.awaited_by_caller_alone():
                await work.fetch(wanted, _max_wait_s(request, work))
        await work.stored()
        return _answer(request, work, self._work)

    async def _refuse_later(self, request: ShareFetchRequest, error: KafkaError) -> ShareFetchAnswer:
        await self._work.pause(request.max_wait_ms / 1000)
        raise error


def _max_wait_s(request: ShareFetchRequest, work: Work) -> float:
    return 0.0 if work.acknowledged or work.errors else request.max_wait_ms / 1000


def _answer(request: ShareFetchRequest, work: Work, all_work: SessionWork) -> ShareFetchAnswer:
    topics: dict[UUID, list[FetchedShare]] = {}
    answered = work.answered(full=request.share_session_epoch == OPEN)
    for (topic_id, index), answer in answered.items():
        topics.setdefault(topic_id, []).append(_partition(index, answer))
    return ShareFetchAnswer(
        lock_ms=work.lock_ms(), topics=list(topics.items()), endpoints=list(all_work.endpoints(answered))
    )


def _partition(index: int, answer: Answered) -> FetchedShare:
    error, refused, taken = answer.error, answer.acknowledge_error, answer.taken
    return FetchedShare(
        index,
        ErrorCode.NONE if error is None else error.code,
        None if error is None else error.message,
        ErrorCode.NONE if refused is None else refused.code,
        None if refused is None else refused.message,
        answer.leader,
        taken.batches,
        [(each.first, each.last, each.count) for each in taken.ranges],
    )


def _check(request: ShareFetchRequest) -> str:
    """The group's id; KafkaError for an invalid request."""
    if not request.group_id or not request.member_id:
        raise _invalid("GroupId and MemberId must not be empty")
    acknowledges = any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    )
    if request.share_session_epoch == OPEN and acknowledges:
        raise _invalid("a session does not begin with acknowledgements")
    if request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        raise _invalid(f"ShareAcquireMode is {request.share_acquire_mode}; use 0 or 1")
    reads = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and reads:
        raise _invalid(
            "a request that renews reads nothing: MaxWait, MinBytes, MaxBytes, MaxRecords must be 0"
        )
    return request.group_id


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
