"""Answers followers' fetches: with batches up to the log's end, or with the point where the logs diverge."""

import asyncio
from typing import Any

from millstream.broker.api.call import LATER, Call, ReplySlot
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.reads import Reads
from millstream.broker.replicas.replication import Replication
from millstream.broker.replicas.sessions import ReplicaSession, WantedPartition, is_urgent
from millstream.broker.replicas.throttle import ReplicaThrottle
from millstream.broker.server.replies import Delayed
from millstream.cluster.metadata.service import MetadataService
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchAnswer, FetchedPartition, FetchPartition, FetchRequest

# The most in one reply, whatever a follower asks for; its partitions take turns.
_MOST_REPLY_BYTES = 16 << 20
# A new high watermark alone is sent after this long: usually a batch comes before, and carries it.
_QUIET_MS = 10


class FollowerFetches:
    def __init__(
        self,
        reads: Reads,
        replication: Replication,
        throttle: ReplicaThrottle,
        metadata: MetadataService,
        delayed: Delayed,
    ) -> None:
        self.reads = reads
        self.replication = replication
        self.throttle = throttle
        self.delayed = delayed
        self._metadata = metadata

    def handle(self, request: FetchRequest, call: Call) -> Any:
        self._check_sender(request)
        session = self.replication.sessions.open(request)
        if session.on_interrupted is not None:
            # The follower has sent a newer request: answer the one that still waits.
            session.on_interrupted()
        return ReplicaFetch(self, call, request, session).begin()

    def _check_sender(self, request: FetchRequest) -> None:
        sender = self._metadata.image.brokers.get(request.replica_id)
        if sender is None or sender.epoch != request.replica_epoch:
            known = "none" if sender is None else str(sender.epoch)
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {request.replica_id} fetches in epoch {request.replica_epoch}, known here is {known}",
            )


class ReplicaFetch:
    """One request of a follower; the session keeps what earlier ones reported."""

    __slots__ = ("_call", "_fetches", "_held_ms", "_reply", "_request", "_scheduled", "_session", "_timer")

    def __init__(
        self, fetches: FollowerFetches, call: Call, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self._fetches = fetches
        self._call = call
        self._request = request
        self._session = session
        self._reply: ReplySlot | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._held_ms = 0

    def begin(self) -> Any:
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
            return self._answered(found)
        for partition in found:
            # Read it again after the wait: more may have come by then.
            self._session.news[_topic_of(partition), partition.index] = None
        patience_ms = self._request.max_wait_ms
        for reason_ms in (_QUIET_MS if found else 0, self._held_ms):
            patience_ms = min(patience_ms, reason_ms or patience_ms)
        self._wait(patience_ms)
        return LATER

    def _note_progress(self, topic: bytes, request: FetchPartition) -> list[FetchedPartition]:
        """Note the follower's position; returns a reply where there is an error, or where the histories diverge."""
        key = topic, request.partition
        wanted = self._session.want(key, request)
        reply = FetchedPartition(topic, request.partition)
        try:
            partition = self._fetches.reads.partitions.find(topic, request.partition)
            Reads.begin(partition, request, reply)
            if partition.log.offline is not None:
                raise partition.log.offline
            self._session.listen(wanted, partition)
            diverging = _diverging(partition, request)
            if diverging is not None:
                reply.diverging_epoch = diverging
                self._session.news.pop(key, None)
                return [reply]
            if request.fetch_offset > partition.log.log_end_offset:
                # The request names no epoch by which to find where the logs diverge. Its offset does not refer to this
                # leader's log: counting it would acknowledge records that are not written yet.
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"the log ends at {partition.log.log_end_offset}"
                )
            self._fetches.replication.follower_fetched(
                partition, self._session.broker_id, self._session.broker_epoch, request
            )
        except KafkaError as error:
            self._call.count_error(error.code)
            self._fetches.reads.failed(None, request, reply, error)
            self._session.news.pop(key, None)
            return [reply]
        return []

    def _read(self) -> list[FetchedPartition]:
        """Everything that is new to the follower, up to the limits; the rest waits for the next reply."""
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
                self._fetches.throttle.spend(wanted.partition, session.broker_id, len(found.records))
            elif not found.error and self._has_more(wanted):
                # Its next batch did not fit.
                session.news[key] = None
            if is_urgent(found) or wanted.differs(found):
                new.append(found)
        return new

    def _is_held(self, wanted: WantedPartition) -> bool:
        if wanted.partition is None:
            return False
        seconds = self._fetches.throttle.wait_seconds(wanted.partition, self._session.broker_id)
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
            partition = self._fetches.reads.partitions.find(*key)
            Reads.begin(partition, request, reply)
            log = partition.log
            reply.records = log.read(
                request.fetch_offset, min(left, request.max_bytes), log.log_end_offset, min_one=min_one
            ).data
        except KafkaError as error:
            self._call.count_error(error.code)
            self._fetches.reads.failed(partition, request, reply, error)
        return reply

    def _answered(self, found: list[FetchedPartition]) -> FetchAnswer:
        found.sort(key=_topic_of)
        for partition in found:
            wanted = self._session.wanted.get((_topic_of(partition), partition.index))
            if wanted is not None:
                wanted.note_sent(partition)
        return FetchAnswer(found, self._session.session_id)

    # -- waiting

    def _wait(self, patience_ms: int) -> None:
        self._reply = self._call.reply_later(on_abandoned=self._abandoned, on_hurried=self._answer)
        self._fetches.delayed.fetches += 1
        self._session.on_news = self._wake
        self._session.on_interrupted = self._interrupt
        self._timer = self._fetches.delayed.later(patience_ms / 1000, self._answer)

    def _wake(self) -> None:
        """Answer in the next turn, to include all that is appended in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._fetches.delayed.next_turn(self._answer)

    def _interrupt(self) -> None:
        reply = self._stop_waiting()
        if reply is not None:
            reply.answer(self._answered([]))

    def _answer(self) -> None:
        reply = self._stop_waiting()
        if reply is not None:
            reply.answer(self._answered(self._read()))

    def _abandoned(self) -> None:
        if self._stop_waiting() is not None:
            self._fetches.replication.sessions.close(self._session)

    def _stop_waiting(self) -> ReplySlot | None:
        reply, self._reply = self._reply, None
        if reply is None:
            return None
        self._fetches.delayed.fetches -= 1
        self._session.on_news = self._session.on_interrupted = None
        if self._timer is not None:
            self._timer.cancel()
        return reply


def _diverging(partition: Partition, request: FetchPartition) -> tuple[int, int] | None:
    found = Reads.divergence(partition, request)
    if found is not None and found.end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known here of epoch {request.last_fetched_epoch}"
        )
    return found


def _topic_of(partition: FetchedPartition) -> bytes:
    return partition.topic if isinstance(partition.topic, bytes) else partition.topic.encode()
