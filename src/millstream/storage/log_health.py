"""Whether a log can be used, and which work on its files is under way.

A full disk fails single writes. Any other fault takes the log offline until the node restarts.
"""

import enum

from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.runtime.disk import NO_ROOM


class LogWork(enum.Enum):
    """Long changes to files: only one at a time, so each begins from NOTHING."""

    NOTHING = "nothing"
    CLEANING = "cleaning"
    REPAIRING = "repairing"
    TRUNCATING = "truncating"


class NoRoom(KafkaError):
    """The disk is full: only this write failed, and it can be retried."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class LogGone(KafkaError):
    """The log was removed, so errors of its files are no fault of the disk."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was removed from this node")


class LogHealth:
    __slots__ = ("_directory", "gone", "has_damaged_end", "is_doubtful", "is_half_swapped", "offline")

    def __init__(self, directory: str, *, is_doubtful: bool = False) -> None:
        self._directory = directory
        self.offline: KafkaError | None = None
        """Why the log can no longer be written or read; None while it can."""
        self.gone: LogGone | None = None
        """Set when the log was removed; another log may use its directory by now."""
        self.is_doubtful = is_doubtful
        """Recovery may have cut confirmed records."""
        self.has_damaged_end = False
        """Damaged records that may be on no other replica: the next start cuts them and compares the replicas' logs."""
        self.is_half_swapped = False
        """A swap of compacted segments may be done only on disk or only in memory; the next start finishes it."""

    @property
    def is_gone(self) -> bool:
        return self.gone is not None

    def require_online(self) -> None:
        if self.offline is not None:
            raise self.offline

    def require_kept(self) -> None:
        if self.gone is not None:
            raise self.gone

    def removed(self) -> None:
        self.offline = self.gone = LogGone()

    def write_failed(self, error: OSError) -> KafkaError:
        """A full disk fails this write only."""
        message = f"cannot write to {self._directory}: {error.strerror}"
        if error.errno in NO_ROOM:
            return self.gone or NoRoom(message)
        return self._take_offline(message)

    def read_failed(self, error: OSError) -> KafkaError:
        message = f"cannot read {self._directory}: {error.strerror}"
        return self.gone or KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def use_failed(self, error: OSError) -> KafkaError:
        """A file cannot be used."""
        return self._take_offline(f"cannot use {self._directory}: {error.strerror}")

    def sync_failed(self, error: OSError) -> KafkaError:
        """After a failed fsync the kernel may have dropped data: nothing after the last good flush is trusted."""
        return self.offline or self._take_offline(
            f"fsync of {self._directory} failed ({error.strerror}); the partition is offline, "
            "restart the node when the disk is sound and it will recover from what is really stored"
        )

    def _take_offline(self, message: str) -> KafkaError:
        if self.gone is None:
            self.offline = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
            return self.offline
        return self.gone
