"""Requests that Kafka's brokers send to a share coordinator; here they are for tools.

Our own nodes ask through `doors.Coordinators`. The answers are those of Kafka's coordinator.

InitializeShareGroupState, version 0; ReadShareGroupState, version 0; WriteShareGroupState, versions 0 to 1;
DeleteShareGroupState, version 0; ReadShareGroupStateSummary, versions 0 to 1.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.delete_share_group_state.v0 import response as deleted
from kio.schema.initialize_share_group_state.v0 import response as initialized
from kio.schema.read_share_group_state.v0 import response as read_response
from kio.schema.read_share_group_state_summary.v1 import response as summarized
from kio.schema.write_share_group_state.v1 import response as written

from millstream.broker.api.call import Call
from millstream.broker.handlers.admin import code_of, message_of, unhurried
from millstream.coordinator.decision import Request
from millstream.coordinator.shares.records import ShareKey
from millstream.coordinator.shares.requests import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StateSummary,
    StoredState,
    WriteState,
)
from millstream.coordinator.shares.states import RecordState, StateBatch
from millstream.doors.cluster import CoordinatorKind, Coordinators
from millstream.protocol.codec import Message
from millstream.protocol.errors import ErrorCode, KafkaError

_NOTHING = StoredState(0, -1, ())
_NO_SUMMARY = StateSummary(0, -1, -1, -1)


Handler = Callable[[Coordinators, Message, Call], Awaitable[Any]]


def _handler(
    response: Callable[..., Any],
    topic_result: Callable[..., Any],
    asked: Callable[[ShareKey, Message], Request[Any]],
    result: Callable[..., Any],
) -> Handler:
    """Sends one request to the coordinator for each partition, and collects the results."""

    async def handle(coordinators: Coordinators, request: Message, call: Call) -> Any:
        topics = []
        async for topic in unhurried(request.topics):
            results = []
            async for each in unhurried(topic.partitions):
                answer, refused = None, None
                try:
                    if topic.topic_id is None or not request.group_id:
                        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId and TopicId must be given")
                    key = ShareKey(request.group_id, topic.topic_id, each.partition)
                    answer = await coordinators.ask(
                        call.caller, CoordinatorKind.SHARE, str(key), asked(key, each)
                    )
                except KafkaError as error:
                    refused = error.as_value()
                code, message = code_of(refused), message_of(refused)
                results.append(
                    result(answer, partition=each.partition, error_code=code, error_message=message)
                )
            topics.append(topic_result(topic_id=topic.topic_id, partitions=tuple(results)))
        return response(results=tuple(topics))

    return handle


def _stored(answer: StoredState | None, **fields: Any) -> read_response.PartitionResult:
    state = answer or _NOTHING
    return read_response.PartitionResult(
        state_epoch=state.state_epoch,
        start_offset=state.start,
        state_batches=tuple(
            read_response.StateBatch(
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=int(each.state),
                delivery_count=each.count,
            )
            for each in state.batches
        ),
        **fields,
    )


def _summary(answer: StateSummary | None, **fields: Any) -> summarized.PartitionResult:
    found = answer or _NO_SUMMARY
    return summarized.PartitionResult(
        state_epoch=found.state_epoch,
        leader_epoch=found.leader_epoch,
        start_offset=found.start,
        delivery_complete_count=found.final,
        **fields,
    )


def _write_request(key: ShareKey, each: Any) -> WriteState:
    stored = {RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED}
    if any(
        batch.delivery_state not in stored or not 0 <= batch.first_offset <= batch.last_offset
        for batch in each.state_batches
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a state batch has an unknown state or bad offsets")
    return WriteState(
        key,
        each.state_epoch,
        each.leader_epoch,
        each.start_offset,
        getattr(each, "delivery_complete_count", -1),
        tuple(
            StateBatch(
                batch.first_offset, batch.last_offset, RecordState(batch.delivery_state), batch.delivery_count
            )
            for batch in each.state_batches
        ),
    )


initialize = _handler(
    initialized.InitializeShareGroupStateResponse,
    initialized.InitializeStateResult,
    lambda key, each: InitializeState(key, each.state_epoch, each.start_offset),
    lambda _answer, **fields: initialized.PartitionResult(**fields),
)
read = _handler(
    read_response.ReadShareGroupStateResponse,
    read_response.ReadStateResult,
    lambda key, each: ReadState(key, each.leader_epoch),
    _stored,
)
write = _handler(
    written.WriteShareGroupStateResponse,
    written.WriteStateResult,
    _write_request,
    lambda _answer, **fields: written.PartitionResult(**fields),
)
delete = _handler(
    deleted.DeleteShareGroupStateResponse,
    deleted.DeleteStateResult,
    lambda key, _each: DeleteState(key),
    lambda _answer, **fields: deleted.PartitionResult(**fields),
)
summary = _handler(
    summarized.ReadShareGroupStateSummaryResponse,
    summarized.ReadStateSummaryResult,
    lambda key, each: ReadSummary(key, each.leader_epoch),
    _summary,
)
