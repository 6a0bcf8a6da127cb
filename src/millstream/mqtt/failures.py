"""What a client is told of something that the log or a coordinator could not do."""

from typing import Final, NamedTuple

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.mqtt.reasons import Reason

# It will not do better if it is sent again: the acknowledgement says so.
_FINAL: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED,
    ErrorCode.MESSAGE_TOO_LARGE: Reason.QUOTA_EXCEEDED,
    ErrorCode.RECORD_LIST_TOO_LARGE: Reason.QUOTA_EXCEEDED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reason.QUOTA_EXCEEDED,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME_INVALID,
    ErrorCode.INVALID_RECORD: Reason.IMPLEMENTATION_SPECIFIC_ERROR,
    ErrorCode.POLICY_VIOLATION: Reason.QUOTA_EXCEEDED,
}


class Failure(NamedTuple):
    """`is_final` is whether the client should hear it in its acknowledgement; else it is to connect and send again."""

    reason: Reason
    text: str
    is_final: bool


def failure_of(error: KafkaError) -> Failure:
    if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
        return Failure(Reason.SESSION_TAKEN_OVER, error.message, False)
    reason = _FINAL.get(error.code)
    if reason is None:
        return Failure(Reason.SERVER_BUSY, error.message, False)
    return Failure(reason, error.message, True)
