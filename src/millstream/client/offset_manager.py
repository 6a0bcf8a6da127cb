"""The committed offsets of a group, from outside it: to look at them, to set them, to start over."""

from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from millstream.client.connect import kafka_errors, open_consumer
from millstream.client.consumer_config import ConsumerConfig, consumer_config
from millstream.client.errors import ClientError, ConfigurationError, GroupChangedError
from millstream.client.positions import END, at, partitions, raise_failed
from millstream.client.settings import OffsetResetPolicy

_REQUEST_TIMEOUT_S = 15.0


class OffsetManager:
    """Reads and changes the offsets of the group that `config` names, without joining it.

    >>> with OffsetManager("localhost:9092", group_id="my-group") as offsets:
    ...     offsets.reset("events", 0, "earliest")
    0

    An offset is that of the next message to read. Offsets can be changed only while the group has no members;
    members commit through their `Consumer`.
    """

    def __init__(self, config: ConsumerConfig[Any, Any] | str | Sequence[str], **settings: Any) -> None:
        config = consumer_config(config, None, None, settings)
        if config.group_id is None:
            raise ConfigurationError("an OffsetManager needs a group: set group_id")
        self.group_id = config.group_id
        self._raw = open_consumer({**config.properties(), "enable.auto.commit": False})

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Let the group continue at `offset`."""
        if offset < 0:
            raise ConfigurationError(
                f"offset is {offset}; commit takes the offset of the next message to read"
            )
        action = f"committing for group {self.group_id}"
        try:
            with kafka_errors(action):
                done = self._raw.commit(offsets=[at((topic, partition), offset)], asynchronous=False)
            raise_failed(action, done)
        except GroupChangedError as error:
            raise GroupChangedError(
                f"{action}: the group has members; stop them, or commit through their consumer", error.code
            ) from error

    def fetch(self, topic: str, partition: int) -> int | None:
        """The group's offset, or None when it has none."""
        action = f"asking for the offset of group {self.group_id}"
        with kafka_errors(action):
            found = self._raw.committed(partitions([(topic, partition)]), _REQUEST_TIMEOUT_S)
        raise_failed(action, found)
        return found[0].offset if found[0].offset >= 0 else None

    def reset(self, topic: str, partition: int, position: OffsetResetPolicy | str | int | datetime) -> int:
        """Let the group continue at another position and return its offset.

        The position is "earliest" or "latest" (OffsetResetPolicy too), an offset, or a time: the first message of
        that time or later, and the end when there is none.
        """
        offset = self.resolve(topic, partition, position)
        self.commit(topic, partition, offset)
        return offset

    def resolve(self, topic: str, partition: int, position: OffsetResetPolicy | str | int | datetime) -> int:
        """The offset that `reset` would set; a number beyond the log is moved to the nearest message."""
        with kafka_errors(f"asking for the offsets of {topic}, partition {partition}"):
            low, high = self._raw.get_watermark_offsets(
                partitions([(topic, partition)])[0], _REQUEST_TIMEOUT_S
            )
            if isinstance(position, datetime):
                offset = self._at_time(topic, partition, position)
                return high if offset == END else offset
        if isinstance(position, int):
            return min(max(position, low), high)
        if position == OffsetResetPolicy.EARLIEST:
            return low
        if position == OffsetResetPolicy.LATEST:
            return high
        raise ConfigurationError(
            f"{position!r} is no position; use 'earliest', 'latest', an offset or a datetime"
        )

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _at_time(self, topic: str, partition: int, moment: datetime) -> int:
        if moment.tzinfo is None:
            raise ConfigurationError("a time to reset to needs a time zone, such as datetime.now(UTC)")
        asked = at((topic, partition), int(moment.timestamp() * 1000))
        found = self._raw.offsets_for_times([asked], _REQUEST_TIMEOUT_S)
        raise_failed("looking for a time", found)
        if found[0].offset < END:
            raise ClientError(
                f"looking for a time in {topic}, partition {partition}: the broker gave no offset"
            )
        return int(found[0].offset)
