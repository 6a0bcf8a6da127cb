"""Makes this node lead, follow or leave alone each partition that it keeps, as the metadata says."""

import asyncio

from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.replicas.fetcher import ReplicaFetcher
from millstream.broker.replicas.following import Copying
from millstream.broker.replicas.in_sync import InSyncSets
from millstream.broker.replicas.recovered import RecoveredReplicas
from millstream.broker.replicas.sessions import ReplicaSessions
from millstream.cluster.metadata.election import staying_in_sync
from millstream.cluster.metadata.image import NO_LEADER, PartitionImage
from millstream.cluster.replication import LeaderState
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.fetch import FetchPartition

log = get_logger("millstream.replicas")

_LOW_WATERMARK_SECONDS = 0.01


class Replication:
    def __init__(
        self,
        copying: Copying,
        partitions: Partitions,
        in_sync: InSyncSets,
        recovered: RecoveredReplicas,
        own_rack: str | None,
        *,
        reads_by_rack: bool,
    ) -> None:
        """With `reads_by_rack`, a client is sent to a follower in its own rack."""
        self._node_id = copying.node_id
        self._clock = copying.machine.clock
        self._metadata = copying.metadata
        self.copying = copying
        self._partitions = partitions
        self.sessions = ReplicaSessions()
        self.in_sync = in_sync
        self.recovered = recovered
        self._own_rack = own_rack
        self._reads_by_rack = reads_by_rack
        self._fetchers: dict[int, ReplicaFetcher] = {}

    def start(self) -> None:
        self.in_sync.start()
        self.recovered.start()

    async def stop(self) -> None:
        tasks = [task for fetcher in self._fetchers.values() for task in fetcher.stop()]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.copying.finish_cuts()

    def update(self, partition: Partition, image: PartitionImage) -> None:
        """Take the role that the metadata gives this node."""
        partition.log.is_catching_up = self._node_id not in image.isr
        if partition.log.health.is_doubtful and self._node_id in image.isr:
            partition.log.trust()
        self.recovered.changed(image)
        if image.leader == self._node_id:
            self._lead(partition, image)
            return
        if not partition.is_leader and (partition.leader_id, partition.leader_epoch) == (
            image.leader,
            image.leader_epoch,
        ):
            return
        self._stop_fetching(partition)
        partition.follow(image.leader, image.leader_epoch)
        if image.leader != NO_LEADER and partition.log.offline is None:
            for base in partition.log.segments.damaged:
                # Ask the new leader for these records: this replica counts only when it has them, or when it is known
                # that the leader lacks them too.
                self.copying.faults.on_damage(partition, base)
            self._fetcher(image.leader).follow(partition, image.leader_epoch)

    def remove(self, partition: Partition) -> None:
        self._stop_fetching(partition)

    def damage_changed(self, partition: Partition) -> None:
        """Damage was found or repaired: report it, because the leader does not count a damaged replica."""
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            fetcher.say(partition)

    def _lead(self, partition: Partition, image: PartitionImage) -> None:
        state = partition.replication
        config = partition.log.config
        now = self._clock.monotonic()
        if partition.is_leader and partition.leader_epoch == image.leader_epoch and state is not None:
            state.min_isr = config.needed_in_sync(len(image.replicas))
            state.metadata_changed(
                image.replicas,
                image.isr,
                image.partition_epoch,
                now,
                removing=image.removing,
                is_move_ready=_is_move_ready(image, state.min_isr),
            )
            partition.in_sync_set_changed()
            self.in_sync.consider(partition)
            return
        self._stop_fetching(partition)
        if len(image.replicas) == 1:
            partition.lead(image.leader_epoch, None)
            return
        state = LeaderState(
            self._node_id,
            image.leader_epoch,
            partition.log.log_end_offset,
            partition.high_watermark,
            now,
            replicas=image.replicas,
            isr=image.isr,
            partition_epoch=image.partition_epoch,
            min_isr=config.needed_in_sync(len(image.replicas)),
            removing=image.removing,
            is_move_ready=_is_move_ready(image, config.needed_in_sync(len(image.replicas))),
        )
        log.debug(
            "leading",
            topic=partition.topic,
            partition=partition.index,
            leader_epoch=image.leader_epoch,
            end=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
            isr=list(image.isr),
        )
        partition.lead(image.leader_epoch, state)
        if state.is_move_ready:
            self.in_sync.consider(partition)

    def config_changed(self, partition: Partition) -> None:
        state = partition.replication
        if state is not None:
            state.min_isr = partition.log.config.needed_in_sync(len(state.replicas))
            partition.count_replicas()

    def broker_changed(self, broker_id: int) -> None:
        """A broker was registered, let in or fenced: retry what waits for it."""
        fetcher = self._fetchers.get(broker_id)
        if fetcher is not None:
            fetcher.leader_changed()
        for partition in self._partitions:
            state = partition.replication
            if state is not None and state.may_join(broker_id, partition.log.log_start_offset):
                self.in_sync.consider(partition)

    def follower_fetched(
        self, partition: Partition, broker_id: int, broker_epoch: int, request: FetchPartition
    ) -> None:
        state = partition.replication
        is_follower = state is not None and state.follower_fetched(
            broker_id,
            request.fetch_offset,
            partition.log.log_end_offset,
            self._clock.monotonic(),
            log_start_offset=request.log_start_offset,
            broker_epoch=broker_epoch,
            is_damaged=request.is_damaged,
        )
        if state is None or not is_follower:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"broker {broker_id} is not known to keep {partition.topic}-{partition.index}",
            )
        partition.count_replicas()
        may_end_move = state.is_move_ready and broker_id in state.removing and state.may_end_move
        if state.pending is None and (
            may_end_move or state.may_join(broker_id, partition.log.log_start_offset)
        ):
            self.in_sync.consider(partition)

    async def low_watermark(self, partition: Partition, wanted: int, timeout_s: float) -> int:
        """The lowest log start of replicas that are live or may lead, when it has reached `wanted` or time is up."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            state, image = partition.replication, self._metadata.image
            own = partition.log.log_start_offset
            if partition.log.offline is not None:
                raise partition.log.offline
            if not partition.is_leader:
                # The new leader may not know the new start.
                raise partition.not_leader()
            if state is None:
                return own
            awaited = {broker.broker_id for broker in image.live_brokers}
            known = image.partition(partition.topic, partition.index)
            if known is not None:
                # A replica that is down may lead next, and would bring back what it has not deleted.
                awaited |= known.counted_on
            lowest = state.lowest_log_start(own, awaited)
            if lowest >= wanted or self._clock.monotonic() >= deadline:
                return lowest
            await asyncio.sleep(_LOW_WATERMARK_SECONDS)

    def preferred_reader(self, partition: Partition, rack: str, offset: int) -> int | None:
        """An in-sync follower in that rack that has reached `offset`; None when this node is to serve the client."""
        state = partition.replication
        if state is None or not self._reads_by_rack or self._own_rack == rack:
            return None
        image = self._metadata.image
        for broker_id in state.isr:
            follower = state.follower(broker_id)
            broker = image.brokers.get(broker_id)
            if (
                follower is not None
                and broker is not None
                and broker.rack == rack
                and not broker.is_fenced
                and follower.end_offset >= offset
                and follower.log_start_offset <= offset
            ):
                return broker_id
        return None

    def _fetcher(self, leader_id: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(self.copying, leader_id)
        return fetcher

    def _stop_fetching(self, partition: Partition) -> None:
        fetcher = self._fetchers.get(partition.leader_id)
        if fetcher is not None:
            fetcher.unfollow(partition)


def _is_move_ready(image: PartitionImage, min_isr: int) -> bool:
    """Whether a reassignment waits only for the leader to request its end."""
    return bool(image.removing and staying_in_sync(image, image.isr, min_isr))
