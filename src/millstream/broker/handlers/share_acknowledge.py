"""ShareAcknowledge, versions 1 and 2: settle records of a share session; answered when it is durable."""

from typing import Any, cast
from uuid import UUID

from millstream.broker.api.call import LATER, Call
from millstream.broker.shares.session_work import SessionWork, Work
from millstream.broker.shares.sessions import CLOSE, OPEN, Source
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.share_acknowledge import AcknowledgeAnswer, AcknowledgeRequest, PartitionOutcome


class ShareAcknowledge:
    def __init__(self, work: SessionWork) -> None:
        self._work = work

    def handle(self, request: AcknowledgeRequest, call: Call) -> Any:
        epoch = request.share_session_epoch
        if not request.group_id or not request.member_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must not be empty")
        if epoch == OPEN:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
        source = cast(Source, call.source)
        work = self._work.begin(request.group_id, request.member_id, epoch, source)
        # The usual case has no task of its own: consumers that acknowledge one by one send many of these.
        if not work.acknowledge_now(request.topics, renewing=request.is_renew_ack):
            return self._load_and_acknowledge(request, work)
        if epoch == CLOSE:
            work.release()
        slot = call.reply_later()
        work.when_stored(lambda: slot.answer(self._answer(work)))
        return LATER

    async def _load_and_acknowledge(self, request: AcknowledgeRequest, work: Work) -> AcknowledgeAnswer:
        await work.acknowledge(request.topics, renewing=request.is_renew_ack)
        if request.share_session_epoch == CLOSE:
            work.release()
        await work.stored()
        return self._answer(work)

    def _answer(self, work: Work) -> AcknowledgeAnswer:
        answered = work.answered(full=False)
        topics: dict[UUID, list[PartitionOutcome]] = {}
        for (topic_id, index), told in answered.items():
            refused = told.acknowledge_error
            outcome = (
                PartitionOutcome(index)
                if refused is None
                else PartitionOutcome(index, refused.code, refused.message, told.leader)
            )
            topics.setdefault(topic_id, []).append(outcome)
        return AcknowledgeAnswer(
            lock_ms=work.lock_ms(),
            topics=list(topics.items()),
            endpoints=list(self._work.endpoints(answered)),
        )
