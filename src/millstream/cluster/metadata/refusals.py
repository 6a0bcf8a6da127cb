"""Why the quorum did not take a change, in the words of Kafka's protocol."""

from millstream.cluster.raft.errors import (
    NotLeader,
    OutcomeUnknown,
    ProposalLost,
    TooMuchUncommitted,
    TransferInProgress,
)
from millstream.cluster.raft.wal import WalBroken, WriteRefused
from millstream.protocol.errors import ErrorCode, KafkaError


def as_kafka_error(error: BaseException) -> KafkaError:
    match error:
        case KafkaError():
            return error
        case NotLeader() | TransferInProgress() | ProposalLost():
            return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
        case TooMuchUncommitted():
            return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error))
        case OutcomeUnknown():
            return KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"{error}; describe the resource to see whether it changed"
            )
        case WriteRefused():
            return KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata change was refused: {error}; it can be tried again when the disk has room",
            )
        case WalBroken():
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"metadata cannot be changed: {error}")
        case _:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"metadata cannot be changed: {error}")
