"""Repairs a damaged segment: fetches its records from a healthy replica and replaces the file.

Nothing is truncated meanwhile: sound records are served, damaged ones refused. Only committed records are fetched, so
the active segment is sealed first, and repaired when the other replicas have it too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from millstream.broker.machine import Machine
from millstream.broker.partitions.flusher import Flusher
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.upkeep import Upkeep
from millstream.broker.replicas.link import ReplicaLink
from millstream.broker.replicas.making_way import MakingWay, NotRepaired
from millstream.cluster.metadata.service import MetadataService
from millstream.observability.logs import get_logger
from millstream.observability.metrics import Counter
from millstream.observability.tasks import keep_going
from millstream.protocol.api import FETCH, PEER_CLIENT
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchPartition
from millstream.protocol.peer_client import Greeting, encode_greeting
from millstream.protocol.record_batch import CorruptBatch
from millstream.protocol.replica_fetch import VERSION, ReplicaFetchRequest, decode_reply, encode_body
from millstream.runtime.sometimes import sometimes
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.log import PartitionLog
from millstream.storage.log_health import LogWork
from millstream.storage.repaired_segment import RepairedSegment, is_of_its_epoch
from millstream.storage.scan import scan_batches
from millstream.storage.segment import Segment

log = get_logger("millstream.replicas")

_FETCH_BYTES = 4 << 20
_REPLY_SECONDS = 5.0
_RETRY_SECONDS = 1.0
_NO_SESSION = -1
# Followers answer only clients that name their rack.
_RACK = "repair"


class _DeletedElsewhere(Exception):
    """The other replica has deleted the records: its log begins behind the damage."""


class _NotToBeHad(KafkaError):
    """The leader cannot provide the records: this replica is no worse than the leader."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(ErrorCode.OFFSET_NOT_AVAILABLE, message)
        self.advice = advice


# The leader's answers when its own copy is damaged or different, or not committed so far.
_REFUSALS = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_NOT_AVAILABLE})


def _require_unchanged(target: PartitionLog, damaged: Segment) -> None:
    if target.offline is not None:
        raise target.offline
    if target.is_being_changed or damaged not in target.segments:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the segment is being changed")


class Repairs:
    """Repairs one segment of a partition at a time, with retries until it succeeds or the partition is gone."""

    def __init__(
        self,
        node_id: int,
        machine: Machine,
        metadata: MetadataService,
        partitions: Partitions,
        flusher: Flusher,
        upkeep: Upkeep,
        end_cleaning: Callable[[PartitionLog], Awaitable[None]],
        repaired: Counter,
        changed: Callable[[Partition], None],
    ) -> None:
        """`repaired` counts segments; `changed` is called when a partition awaits a repair, or no longer does."""
        self._node_id = node_id
        self._machine = machine
        self._metadata = metadata
        self._partitions = partitions
        self._flusher = flusher
        self._upkeep = upkeep
        self._end_cleaning = end_cleaning
        self._repaired = repaired
        self._changed = changed
        self._making_way = MakingWay(node_id, metadata)
        self._wanted: dict[Partition, dict[int, int | None]] = {}
        """Offsets in damaged segments, and from where on their records are damaged if that is not committed."""
        self.unrepaired: dict[Partition, NotRepaired] = {}
        """Why the last attempt to repair a partition failed."""
        self._looked_at: set[Segment] = set()

    def damaged(self, partition: Partition, offset: int) -> None:
        """A batch at or after `offset` failed its checksum when it was read."""
        if self._metadata.image.partition(partition.topic, partition.index) is None:
            return
        if self.is_alone(partition):
            at = partition.log.segments.find(offset)
            if at >= 0 and partition.log.segments[at].base_offset not in partition.log.segments.damaged:
                self._look_at(partition, partition.log.segments[at])
            return
        is_busy = partition in self._wanted
        wanted = self._wanted.setdefault(partition, {})
        wanted[offset] = offset if offset >= partition.high_watermark else wanted.get(offset)
        self._bind(partition)
        self._await(partition, offset)
        if not is_busy:
            self._machine.tasks.spawn(self._repair(partition), "repair")

    def is_alone(self, partition: Partition) -> bool:
        """Whether no other node keeps the partition."""
        image = self._metadata.image.partition(partition.topic, partition.index)
        return image is not None and len(image.replicas) < 2

    def _look_at(self, partition: Partition, segment: Segment) -> None:
        """Without another replica to repair the segment, only note whether it is damaged."""
        if segment not in self._looked_at:
            self._looked_at.add(segment)
            self._machine.tasks.spawn(self._note(partition.log, segment), "damage")

    async def _note(self, target: PartitionLog, segment: Segment) -> None:
        try:
            is_sound = await self._sound_to(segment, target) is None
        except OSError:
            # Deleted meanwhile; otherwise the next reader finds the damage again.
            return
        finally:
            self._looked_at.discard(segment)
        if segment in target.segments and not is_sound:
            target.segments.damaged.add(segment.base_offset)
        elif is_sound:
            target.segments.damaged.discard(segment.base_offset)

    def _await(self, partition: Partition, offset: int) -> None:
        if offset not in partition.awaits_repair:
            partition.awaits_repair.add(offset)
            self._changed(partition)

    def _await_no_more(self, partition: Partition, offset: int) -> None:
        if offset in partition.awaits_repair:
            partition.awaits_repair.discard(offset)
            self._changed(partition)

    def found_at_start(self, damaged: Mapping[str, list[int]]) -> None:
        """Recovery found damage in these segments, by directory."""
        if damaged:
            for partition in self._partitions:
                for base in damaged.get(partition.log.directory, ()):
                    self.damaged(partition, base)
                if self.is_alone(partition):
                    for segment in partition.log.segments:
                        if segment.base_offset in partition.log.segments.damaged:
                            # An operator may have put the file back.
                            self._look_at(partition, segment)

    async def _repair(self, partition: Partition) -> None:
        try:
            await keep_going(partial(self._repair_wanted, partition))
        finally:
            self.unrepaired.pop(partition, None)
            del self._wanted[partition]
            partition.awaits_repair.clear()

    async def _repair_wanted(self, partition: Partition) -> None:
        wanted = self._wanted[partition]
        while wanted and partition.log.offline is None:
            offset = next(iter(wanted))
            # If it fails, another segment may have to be repaired first.
            wanted[offset] = wanted.pop(offset)
            try:
                await self._repair_segment(partition, offset)
            except (OSError, TimeoutError, KafkaError) as error:
                if partition.log.health.is_gone:
                    return
                if isinstance(error, _NotToBeHad):
                    # It is retried, but the in-sync set does not wait for it: too few replicas might be in sync.
                    self._await_no_more(partition, offset)
                reason = str(error) or repr(error)
                self.unrepaired[partition] = NotRepaired(reason, getattr(error, "advice", ""))
                log.warning(
                    "not repaired yet",
                    topic=partition.topic,
                    partition=partition.index,
                    offset=offset,
                    error=reason,
                )
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                del wanted[offset]
                self.unrepaired.pop(partition, None)
                self._await_no_more(partition, offset)
                self._bind(partition)

    async def _repair_segment(self, partition: Partition, offset: int) -> None:
        target = partition.log
        at = target.segments.find(offset)
        if at < 0:
            return
        damaged = target.segments[at]
        sound_to = await self._sound_to(damaged, target)
        if sound_to is None:
            target.segments.damaged.discard(damaged.base_offset)
            target.note_sound()
            return
        target.segments.damaged.add(damaged.base_offset)
        await self._end_cleaning(target)
        _require_unchanged(target, damaged)
        if damaged is target.segments[-1]:
            try:
                target.roll(self._machine.clock.now_ms())
            except OSError as error:
                raise target.health.write_failed(error) from error
        await self._flusher.sync(partition)
        _require_unchanged(target, damaged)
        end_offset = target.segments[target.segments.index(damaged) + 1].base_offset
        if partition.high_watermark < end_offset:
            at_offset = max(offset, sound_to)
            if at_offset < partition.high_watermark:
                raise _NotToBeHad("the damaged segment is not committed yet")
            self._wanted[partition][offset] = at_offset
            self._bind(partition)
            raise _NotToBeHad(*await self._making_way.ask(partition))
        repaired = RepairedSegment(
            target, damaged.summary, end_offset, sound_to, self._machine.clock.now_ms()
        )
        try:
            await self._fetch(partition, repaired, end_offset)
        except _DeletedElsewhere:
            _require_unchanged(target, damaged)
            await self._upkeep.delete_records_before(partition, end_offset)
            return
        _require_unchanged(target, damaged)
        # Nothing else changes the segments until the file is replaced.
        target.work = LogWork.REPAIRING
        try:
            await self._put_in_place(partition, damaged, repaired)
        finally:
            target.work = LogWork.NOTHING
        self._repaired.value += 1
        sometimes("a damaged segment was repaired")
        image = self._metadata.image.partition(partition.topic, partition.index)
        if image is not None and (image.adding or image.removing):
            sometimes("a repair ran during a move")
        log.warning(
            "damaged segment repaired from another replica",
            topic=partition.topic,
            partition=partition.index,
            segment=damaged.log_path,
            bytes=repaired.size_bytes,
        )

    def _bind(self, partition: Partition) -> None:
        """Keep this node from committing records that it cannot read, now or when it leads next."""
        bounds = self._wanted[partition].values()
        uncommitted = [each for each in bounds if each is not None and each >= partition.high_watermark]
        partition.damaged_from = min(uncommitted, default=None)
        if partition.replication is not None:
            partition.replication.damaged_from = partition.damaged_from
            partition.log.health.has_damaged_end = bool(uncommitted)
            partition.count_replicas()

    async def _put_in_place(self, partition: Partition, damaged: Segment, repaired: RepairedSegment) -> None:
        target, disk = partition.log, self._machine.disk
        await self._machine.workers.run(lambda: repaired.write(disk))
        # On disk before the new file: an earlier checkpoint must not vouch for it.
        number = repaired.announce()
        await self._flusher.sync(partition)
        if target.offline is not None:
            raise target.offline
        repaired.put_in_place(damaged, number)
        await self._flusher.sync(partition)

    async def _sound_to(self, segment: Segment, target: PartitionLog) -> int | None:
        """The first offset that cannot be read; None when all is sound.

        It may have been repaired already: several readers may have reported the same damage.
        """
        path, summary, disk = segment.log_path, segment.summary, self._machine.disk
        known, log_start = LeaderEpochs(target.epochs.entries), target.log_start_offset

        def scan() -> int | None:
            file = disk.open(path, read_only=True)
            expected = summary.base_offset
            try:
                for _, header, _ in scan_batches(file, 0, summary.size_bytes):
                    has_gap = header.base_offset > expected and not summary.compacted
                    if header.base_offset < expected or header.last_offset >= summary.end_offset or has_gap:
                        return expected
                    if not is_of_its_epoch(header, known, log_start):
                        return expected
                    expected = header.last_offset + 1
            except CorruptBatch:
                return expected
            finally:
                file.close()
            return None

        return await self._machine.workers.run(scan)

    async def _fetch(self, partition: Partition, repaired: RepairedSegment, end_offset: int) -> None:
        failure: Exception = KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "no other replica is in sync")
        has_deleted, is_refused = [], False
        for broker_id in self._healthy(partition):
            repaired.clear()
            try:
                await self._fetch_from(broker_id, partition, repaired, end_offset)
            except _DeletedElsewhere:
                has_deleted.append(broker_id)
            except (OSError, TimeoutError, KafkaError) as error:
                failure = error
                if broker_id == partition.leader_id and isinstance(error, KafkaError):
                    is_refused |= error.code in _REFUSALS
            else:
                return
        known = self._metadata.image.partition(partition.topic, partition.index)
        if known is not None and {*has_deleted, self._node_id} >= set(known.replicas):
            raise _DeletedElsewhere
        raise _NotToBeHad(str(failure)) if is_refused else failure

    def _healthy(self, partition: Partition) -> list[int]:
        image = self._metadata.image
        known = image.partition(partition.topic, partition.index)
        if known is None:
            return []
        # Replicas that are not in sync mostly have the committed records too; what any replica sends is checked.
        others = [each for each in known.replicas if each not in known.isr]
        return [each for each in (*known.isr, *others) if each != self._node_id and image.is_live(each)]

    async def _fetch_from(
        self, broker_id: int, partition: Partition, repaired: RepairedSegment, end_offset: int
    ) -> None:
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {broker_id} was removed")
        endpoint = broker.for_nodes
        link = await ReplicaLink.connect(endpoint.host, endpoint.port)
        try:
            # Keep the node from forwarding the request to a leader: its own replica is wanted.
            link.send(PEER_CLIENT, 0, encode_greeting(Greeting()))
            while not repaired.is_whole:
                wanted = FetchPartition(partition.index, -1, repaired.next_offset, -1, -1, _FETCH_BYTES)
                request = ReplicaFetchRequest(
                    -1, -1, 0, _NO_SESSION, 0, _FETCH_BYTES, {(partition.topic_id, partition.index): wanted},
                    rack_id=_RACK,
                )  # fmt: skip
                async with asyncio.timeout(_REPLY_SECONDS):
                    body = await link.send(FETCH, VERSION, encode_body(request), flexible=True)
                reply = decode_reply(body)
                for found in reply.partitions:
                    if found.error == ErrorCode.OFFSET_OUT_OF_RANGE and found.log_start_offset >= end_offset:
                        raise _DeletedElsewhere
                    if found.error:
                        raise KafkaError(found.error, f"broker {broker_id} answered {found.error.name}")
                    repaired.add(memoryview(found.records))
        finally:
            link.close()
