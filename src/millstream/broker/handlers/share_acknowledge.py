"""ShareAcknowledge, versions 1 and 2: settle records of a share session; answered when it is durable."""

import datetime
from typing import cast
from uuid import UUID

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import answer
from millstream.broker.shares.session_work import SessionWork
from millstream.broker.shares.sessions import CLOSE, OPEN, Source
from millstream.protocol.errors import ErrorCode, KafkaError

_MILLISECOND = datetime.timedelta(milliseconds=1)


class ShareAcknowledge:
    def __init__(self, work: SessionWork) -> None:
        self._work = work

    async def handle(self, request: ShareAcknowledgeRequest, call: Call) -> ShareAcknowledgeResponse:
        epoch = request.share_session_epoch
        try:
            if not request.group_id or not request.member_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and MemberId must not be empty")
            if epoch == OPEN:
                raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by ShareFetch")
            work = self._work.begin(request.group_id, request.member_id, epoch, cast(Source, call.source))
        except KafkaError as error:
            return answer(
                ShareAcknowledgeResponse,
                error_code=error.code,
                error_message=error.message,
                acquisition_lock_timeout=datetime.timedelta(),
                responses=(),
                node_endpoints=(),
            )
        await work.acknowledge(request.topics, renewing=request.is_renew_ack)
        if epoch == CLOSE:
            work.release()
        await work.stored()
        answered = work.answered(full=False)
        topics: dict[UUID, list[PartitionData]] = {}
        for (topic_id, index), told in answered.items():
            refused = told.acknowledge_error
            topics.setdefault(topic_id, []).append(
                PartitionData(
                    partition_index=index,
                    error_code=ErrorCode.NONE if refused is None else refused.code,
                    error_message=None if refused is None else refused.message,
                    current_leader=LeaderIdAndEpoch(leader_id=told.leader[0], leader_epoch=told.leader[1]),
                )
            )
        return answer(
            ShareAcknowledgeResponse,
            error_code=ErrorCode.NONE,
            error_message=None,
            acquisition_lock_timeout=work.lock_ms() * _MILLISECOND,
            responses=tuple(
                ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            node_endpoints=tuple(
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in self._work.endpoints(answered)
            ),
        )
