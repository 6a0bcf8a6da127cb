"""What a client hears of a coordinator that cannot answer: Kafka's codes, which make it look it up again."""

from typing import Final

from millstream.protocol.errors import ErrorCode, KafkaError, NotDone

_TOLD_AS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class NotDecided(NotDone):
    """Refused before it was decided."""


def is_expected(error: BaseException) -> bool:
    """An append that failed as appends do while nodes come and go; anything else is a fault."""
    return isinstance(error, KafkaError) and error.code in _TOLD_AS


def append_failure(error: BaseException) -> KafkaError:
    if isinstance(error, KafkaError):
        return KafkaError(_TOLD_AS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
    if isinstance(error, OSError):
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"the coordinator's log cannot be written: {error}")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's log cannot be written")
