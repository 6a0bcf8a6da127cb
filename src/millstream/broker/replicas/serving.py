"""A follower's fetch, answered by the leader: batches up to the log's end, or where the two logs part."""

import asyncio
from typing import TYPE_CHECKING

from millstream.broker.api.dispatch import LaterReply, RequestContext
from millstream.broker.partitions.partition import Partition
from millstream.broker.replicas.sessions import ReplicaSession, WantedPartition, is_urgent
from millstream.cluster.replication.divergence import find_divergence
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, encode_fetch_reply

if TYPE_CHECKING:
    from millstream.broker.node import Broker

# What a follower is sent at once, whatever it asks for; its partitions take turns.
_MOST_REPLY_BYTES = 16 << 20
# A new high watermark alone is told after this long: mostly there is a batch by then to tell it with.
_QUIET_MS = 10


def serve_replica(broker: "Broker", context: RequestContext, request: FetchRequest) -> None:
    try:
        _check_sender(broker, request)
        session = broker.replication.sessions.open(request)
    except KafkaError as error:
        broker.dispatcher.count_error(context.api, error.code)
        context.reply(encode_fetch_reply(context.version, [], error=error.code))
        return
    if session.interrupted is not None:
        # The follower has something new to say: the answer to what it said before need not wait any longer.
        session.interrupted()
    ReplicaFetch(broker, context, request, session).begin()


def _check_sender(broker: "Broker", request: FetchRequest) -> None:
    sender = broker.metadata.image.brokers.get(request.replica_id)
    if sender is None or sender.epoch != request.replica_epoch:
        known = "none" if sender is None else str(sender.epoch)
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {request.replica_id} fetches in epoch {request.replica_epoch}, known here is {known}",
        )


class ReplicaFetch:
    """One request of a follower; the session remembers what earlier ones said."""

    __slots__ = ("_broker", "_context", "_held_ms", "_reply", "_request", "_scheduled", "_session", "_timer")

    def __init__(
        self, broker: "Broker", context: RequestContext, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._session = session
        self._reply: LaterReply | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._held_ms = 0

    def begin(self) -> None:
        session = self._session
        for topic, indexes in self._request.forgotten:
            if isinstance(topic, bytes):
                for index in indexes:
                    session.forget((topic, index))
        found = []
        for topic, partitions in self._request.topics:
            if isinstance(topic, bytes):
                for wanted in partitions:
                    found += self._note_progress(topic, wanted)
        found += self._read()
        if any(map(is_urgent, found)) or self._request.max_wait_ms <= 0:
            self._context.reply(self._encode(found))
            return
        for partition in found:
            # To be read again: more may have come by then.
            self._session.news[_topic_of(partition), partition.index] = None
        patience_ms = self._request.max_wait_ms
        for reason_ms in (_QUIET_MS if found else 0, self._held_ms):
            patience_ms = min(patience_ms, reason_ms or patience_ms)
        self._wait(patience_ms)

    def _note_progress(self, topic: bytes, request: FetchPartition) -> list[FetchedPartition]:
        """Note what the follower has; the reply for a partition that has an error, or whose histories part."""
        key = topic, request.partition
        wanted = self._session.want(key, request)
        reply = FetchedPartition(topic, request.partition)
        try:
            partition = self._broker.partitions.find(topic, request.partition)
            partition.check_epoch(request.current_leader_epoch)
            if partition.log.offline is not None:
                raise partition.log.offline
            self._session.listen(wanted, partition)
            _describe(partition, reply)
            diverging = _diverging(partition, request)
            if diverging is not None:
                reply.diverging_epoch = diverging
                self._session.news.pop(key, None)
                return [reply]
            if request.fetch_offset > partition.log.log_end_offset:
                # It names no epoch that would tell where the logs part. What it asks from is not what it has of this
                # leader's: counted, it would confirm what is yet to be written up to there.
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {partition.log.log_end_offset}"
                )
            self._broker.replication.follower_fetched(
                partition, self._session.broker_id, self._session.broker_epoch, request
            )
        except KafkaError as error:
            self._note(error)
            reply.error = error.code
            self._session.news.pop(key, None)
            return [reply]
        return []

    def _read(self) -> list[FetchedPartition]:
        """Everything that is new to the follower, up to the limits; the rest stays news."""
        session = self._session
        left = min(self._request.max_bytes, _MOST_REPLY_BYTES)
        new: list[FetchedPartition] = []
        is_first = True
        for key in list(session.news):
            if left <= 0:
                break
            wanted = session.wanted.get(key)
            if wanted is not None and self._is_held(wanted):
                continue
            del session.news[key]
            if wanted is None or wanted.is_answered:
                continue
            found = self._read_partition(key, wanted.request, left, min_one=is_first)
            if len(found.records) and wanted.partition is not None:
                left -= len(found.records)
                is_first = False
                self._broker.replication.given.spend(wanted.partition, session.broker_id, len(found.records))
            elif not found.error and self._has_more(wanted):
                # There was no room for its next batch.
                session.news[key] = None
            if is_urgent(found) or wanted.differs(found):
                new.append(found)
        return new

    def _is_held(self, wanted: WantedPartition) -> bool:
        if wanted.partition is None:
            return False
        seconds = self._broker.replication.given.wait_seconds(wanted.partition, self._session.broker_id)
        self._held_ms = max(self._held_ms, int(seconds * 1000))
        return seconds > 0

    @staticmethod
    def _has_more(wanted: WantedPartition) -> bool:
        partition = wanted.partition
        return partition is not None and wanted.request.fetch_offset < partition.log.log_end_offset

    def _read_partition(
        self, key: tuple[bytes, int], request: FetchPartition, left: int, *, min_one: bool
    ) -> FetchedPartition:
        reply = FetchedPartition(*key)
        partition = None
        try:
            partition = self._broker.partitions.find(*key)
            partition.check_epoch(request.current_leader_epoch)
            _describe(partition, reply)
            log = partition.log
            reply.records = log.read(
                request.fetch_offset, min(left, request.max_bytes), log.log_end_offset, min_one=min_one
            ).data
        except KafkaError as error:
            self._note(error)
            reply.error = error.code
            if partition is not None and error.code == ErrorCode.CORRUPT_MESSAGE:
                self._broker.replication.repairs.damaged(partition, request.fetch_offset)
        return reply

    def _note(self, error: KafkaError) -> None:
        self._broker.dispatcher.count_error(self._context.api, error.code)
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self._broker.corruption(error)
        elif error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._broker.storage_error("read", error)

    def _encode(self, found: list[FetchedPartition]) -> list[bytes | memoryview]:
        found.sort(key=_topic_of)
        for partition in found:
            wanted = self._session.wanted.get((_topic_of(partition), partition.index))
            if wanted is not None:
                wanted.told(partition)
        return encode_fetch_reply(self._context.version, found, session_id=self._session.session_id)

    # -- waiting

    def _wait(self, patience_ms: int) -> None:
        self._reply = self._context.reply_later()
        self._reply.may_be_cut_short(abandoned=self._abandoned, hurried=self._answer)
        self._broker.delayed_fetches += 1
        self._session.woken = self._wake
        self._session.interrupted = self._interrupt
        self._timer = self._broker.loop.call_later(patience_ms / 1000, self._answer)

    def _wake(self) -> None:
        """In a turn of its own: whatever else is appended in this one goes along."""
        if not self._scheduled:
            self._scheduled = True
            self._broker.loop.call_soon(self._answer)

    def _interrupt(self) -> None:
        reply = self._stop_waiting()
        if reply is not None:
            reply.complete(self._encode([]))

    def _answer(self) -> None:
        reply = self._stop_waiting()
        if reply is not None:
            reply.complete(self._encode(self._read()))

    def _abandoned(self) -> None:
        if self._stop_waiting() is not None:
            self._broker.replication.sessions.close(self._session)

    def _stop_waiting(self) -> LaterReply | None:
        reply, self._reply = self._reply, None
        if reply is None:
            return None
        self._broker.delayed_fetches -= 1
        self._session.woken = self._session.interrupted = None
        if self._timer is not None:
            self._timer.cancel()
        return reply


def _describe(partition: Partition, reply: FetchedPartition) -> None:
    reply.log_start_offset = partition.log.log_start_offset
    reply.high_watermark = reply.last_stable_offset = partition.high_watermark


def _diverging(partition: Partition, request: FetchPartition) -> tuple[int, int] | None:
    log = partition.log
    found = find_divergence(log.epochs, log.log_end_offset, request.fetch_offset, request.last_fetched_epoch)
    if found is not None and found.end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known here of epoch {request.last_fetched_epoch}"
        )
    return found


def _topic_of(partition: FetchedPartition) -> bytes:
    return partition.topic if isinstance(partition.topic, bytes) else partition.topic.encode()
