"""What can go wrong between a task and the cluster."""

from millstream.protocol.errors import ErrorCode


class SourceError(Exception):
    """A failure that a user of the data source sees; the message says what to do."""


class OptionError(SourceError, ValueError):
    """An option that is missing, unknown or cannot be used."""


class Unreachable(SourceError, ConnectionError):
    """No broker answered in time."""


class AuthenticationFailed(SourceError, PermissionError):
    """The broker refused the credentials; trying again would not help."""


class DataLoss(SourceError):
    """Offsets that should be read are gone."""


class BrokerRefused(SourceError):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        super().__init__(f"{what}: {error_name(code)}")

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
