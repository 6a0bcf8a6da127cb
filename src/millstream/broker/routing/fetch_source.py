"""Fetches from one leader for one client: the poll under way, the records found, the partitions' offsets."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.broker.api.call import Call
from millstream.broker.handlers.fetch import MAX_REPLY_BYTES
from millstream.broker.routing.lane import LaneLost
from millstream.protocol.errors import ErrorCode
from millstream.protocol.fetch import FetchedPartition, FetchPartition
from millstream.protocol.replica_fetch import VERSION, ReplicaFetchRequest, decode_reply, encode_body
from millstream.protocol.wire import MalformedRequest

if TYPE_CHECKING:
    from millstream.broker.routing.relay import ClientRelay

Key = tuple[bytes, int]

_NO_SESSION, _FINAL_EPOCH = 0, -1
_MIN_REPLY_BYTES = 1 << 16
# Added to the time that the leader may wait for data.
_SILENCE_SECONDS = 5.0
# Delays the error of a lost leader: the client would ask again at once.
_PAUSE_SECONDS = 0.1


class FetchSource:
    """`changed` is called when an answer has arrived."""

    def __init__(self, relay: "ClientRelay", node: int, changed: Callable[[], None]) -> None:
        self.node = node
        self.found: dict[Key, tuple[FetchPartition, FetchedPartition]] = {}
        """The partition as it was asked for, and as it was answered."""
        self.found_bytes = 0
        self.is_asking = False
        self.min_bytes = 0
        """Bytes that the current poll waits for."""
        self.is_asking_at_once = False
        self._relay = relay
        self._changed = changed
        self._wanted: dict[Key, FetchPartition] = {}
        self._asked: dict[Key, FetchPartition] = {}
        self._number = 0
        self._last_offsets: dict[Key, tuple[int, int, int]] = {}

    @property
    def has_news(self) -> bool:
        """Whether the reply must carry news other than records: an error, divergence, or a closer replica."""
        return any(_is_news(found) for _, found in self.found.values())

    @property
    def is_known(self) -> bool:
        return all(key in self._last_offsets for key in self._wanted)

    def without_news(self, topic: str | bytes, key: Key) -> FetchedPartition:
        """The answer for a partition without news: its last known offsets."""
        known = self._last_offsets.get(key)
        if known is None:
            return FetchedPartition(topic, key[1], ErrorCode.NOT_LEADER_OR_FOLLOWER)
        high_watermark, last_stable_offset, log_start_offset = known
        return FetchedPartition(
            topic,
            key[1],
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
        )

    def want(self, partitions: dict[Key, FetchPartition]) -> None:
        """Set what the client asks for now. A poll for anything else is ended, and its records are dropped."""
        self._wanted = partitions
        # Partitions that are no longer wanted get no updates, so their offsets would become stale.
        self._last_offsets = {key: known for key, known in self._last_offsets.items() if key in partitions}
        for key, (asked, found) in list(self.found.items()):
            if not _is_same(partitions.get(key), asked):
                self._forget(key, found)
        if self.is_asking and not all(
            key in self.found or _is_same(each, self._asked.get(key)) for key, each in partitions.items()
        ):
            self.stop()

    def ask(
        self, context: Call, isolation_level: int, max_bytes: int, wait_ms: int, min_bytes: int, rack_id: str
    ) -> None:
        self._asked = dict(self._wanted)
        self.min_bytes = min_bytes
        self._number += 1
        self.is_asking, self.is_asking_at_once = True, wait_ms == 0
        number, free = self._number, self._relay.server.reply_memory.free_bytes
        body = encode_body(
            ReplicaFetchRequest(
                -1,
                -1,
                _NO_SESSION,
                _FINAL_EPOCH,
                wait_ms,
                min(max_bytes, MAX_REPLY_BYTES, max(free, _MIN_REPLY_BYTES)),
                self._asked,
                rack_id=rack_id,
                min_bytes=min_bytes,
                isolation_level=isolation_level,
            )
        )
        self._relay.send(
            self.node,
            "fetch",
            context,
            (body,),
            wait_ms / 1000 + _SILENCE_SECONDS,
            lambda reply: self._answered(number, reply),
            VERSION,
        )

    def take(self, left: int, taken: dict[Key, FetchedPartition]) -> int:
        """Move answers that fit into `taken`, the first of any size; returns the room that is left."""
        for key, (_, found) in list(self.found.items()):
            size = len(found.records)
            if size > left and any(len(each.records) for each in taken.values()):
                continue
            left -= size
            taken[key] = found
            self._forget(key, found)
        return left

    def close(self) -> None:
        self.stop()
        self.forget()

    def forget(self) -> None:
        for key, (_, found) in list(self.found.items()):
            self._forget(key, found)

    def stop(self) -> None:
        """End the poll; records found before are kept."""
        self._number += 1
        if self.is_asking:
            self.is_asking = self.is_asking_at_once = False
            # The next poll would be answered after this one.
            self._relay.drop_lane(self.node, "fetch")

    def _forget(self, key: Key, found: FetchedPartition) -> None:
        del self.found[key]
        self.found_bytes -= len(found.records)
        self._relay.server.reply_memory.give_back(len(found.records))

    def _answered(self, number: int, reply: memoryview | LaneLost) -> None:
        if number != self._number:
            return
        if not isinstance(reply, LaneLost):
            try:
                answered = decode_reply(reply)
            except MalformedRequest as error:
                reply = LaneLost(str(error), was_sent=True)
            else:
                self._heard(answered.partitions)
                return
        self._relay.loop.call_later(_PAUSE_SECONDS, self._lost, number)

    def _lost(self, number: int) -> None:
        if number == self._number:
            self._heard(
                [
                    FetchedPartition(topic_id, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    for topic_id, index in self._asked
                ]
            )

    def _heard(self, partitions: list[FetchedPartition]) -> None:
        self.is_asking = self.is_asking_at_once = False
        for found in partitions:
            key = (found.topic if isinstance(found.topic, bytes) else found.topic.encode()), found.index
            asked = self._asked.get(key)
            if asked is None or not _is_same(self._wanted.get(key), asked):
                continue
            if found.error:
                self._last_offsets.pop(key, None)
            else:
                self._last_offsets[key] = (
                    found.high_watermark,
                    found.last_stable_offset,
                    found.log_start_offset,
                )
            if key in self.found:
                self._forget(key, self.found[key][1])
            if len(found.records) or _is_news(found):
                self.found[key] = asked, found
                self.found_bytes += len(found.records)
                self._relay.server.reply_memory.take(len(found.records))
        self._changed()


def _is_news(found: FetchedPartition) -> bool:
    """Whether the reply must carry news other than records: an error, divergence, or a closer replica."""
    return bool(found.error) or found.diverging_epoch is not None or found.preferred_read_replica >= 0


def _is_same(wanted: FetchPartition | None, asked: FetchPartition | None) -> bool:
    return (
        wanted is not None
        and asked is not None
        and wanted.fetch_offset == asked.fetch_offset
        and wanted.current_leader_epoch == asked.current_leader_epoch
        and wanted.last_fetched_epoch == asked.last_fetched_epoch
    )
