"""Asks the controller to change the in-sync sets of the partitions that this node leads.

One change per partition at a time. A change whose outcome is unknown is asked for again until the metadata shows the
outcome: until then it may have been made.
"""

import asyncio
from uuid import UUID

from millstream.broker.machine import Machine
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.cluster.metadata.commands import CHANGED_AT_ONCE
from millstream.cluster.metadata.in_sync_sets import ChangeInSyncSets, InSyncChange, InSyncResult
from millstream.cluster.metadata.service import MetadataService
from millstream.cluster.replication import LeaderState, PendingChange
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import ErrorCode, KafkaError

log = get_logger("millstream.replicas")

_RETRY_SECONDS = 0.1
# The metadata will show the outcome: they have moved on, or the controller is behind.
_TO_BE_SEEN = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.NOT_CONTROLLER,
    }
)

_Proposed = tuple[Partition, LeaderState, PendingChange]


class InSyncSets:
    def __init__(
        self,
        node_id: int,
        machine: Machine,
        metadata: MetadataService,
        partitions: Partitions,
        max_lag_seconds: float,
    ) -> None:
        self._node_id = node_id
        self._tasks = machine.tasks
        self._clock = machine.clock
        self._metadata = metadata
        self._partitions = partitions
        self._own_max_lag_seconds = max_lag_seconds
        self._to_examine: dict[Partition, None] = {}
        self._proposed: list[_Proposed] = []
        self._has_work = asyncio.Event()

    def start(self) -> None:
        self._tasks.spawn(keep_going(self._take_changes), "in-sync sets")
        self._tasks.spawn(keep_going(self._watch_lag), "replica lag")

    @property
    def _max_lag_seconds(self) -> float:
        """No member is taken out within a session by its own settings: a replaced leader answers reads by its lease."""
        sessions = (each.session_ms / 1000 for each in self._metadata.image.brokers.values())
        return max((self._own_max_lag_seconds, *sessions))

    def consider(self, partition: Partition) -> None:
        """A follower may have caught up."""
        self._to_examine[partition] = None
        self._has_work.set()

    async def _watch_lag(self) -> None:
        while True:
            await asyncio.sleep(self._own_max_lag_seconds / 2)
            now, max_lag_seconds = self._clock.monotonic(), self._max_lag_seconds
            for partition in self._partitions:
                state = partition.replication
                if state is not None and state.lagging(partition.log.log_end_offset, now, max_lag_seconds):
                    self.consider(partition)

    async def _take_changes(self) -> None:
        while True:
            if not self._proposed and not self._to_examine:
                await self._has_work.wait()
            self._has_work.clear()
            while self._to_examine and len(self._proposed) < CHANGED_AT_ONCE:
                partition = next(iter(self._to_examine))
                # Before it is proposed: an error must not hold up the others.
                del self._to_examine[partition]
                self._proposed += self._propose(partition)
            self._proposed = [
                each
                for each in self._proposed
                if each[1].pending is each[2] and each[0].replication is each[1]
            ]
            if self._proposed:
                self._proposed = await self._ask(self._proposed)
            if self._proposed:
                await asyncio.sleep(_RETRY_SECONDS)

    def _propose(self, partition: Partition) -> list[_Proposed]:
        state = partition.replication
        if state is None or state.pending is not None or not partition.is_leader:
            return []
        now = self._clock.monotonic()
        end, max_lag_seconds = partition.log.log_end_offset, self._max_lag_seconds
        leaving = state.lagging(end, now, max_lag_seconds)
        joining = [
            each
            for each in state.replicas
            # With a lower start it would bring back deleted records as leader.
            if state.may_join(each, partition.log.log_start_offset)
            and self._is_eligible(state, each)
            # A silent one would have to leave again at once, over and over while nothing is committed.
            and not state.is_lagging(each, end, now, max_lag_seconds)
        ]
        if not leaving and not joining and not (state.is_move_ready and state.may_end_move):
            return []
        change = state.propose(self._metadata.broker_epoch, joining=joining, leaving=leaving)
        return [(partition, state, change)]

    def _is_eligible(self, state: LeaderState, broker_id: int) -> bool:
        broker = self._metadata.image.brokers.get(broker_id)
        follower = state.follower(broker_id)
        return (
            broker is not None
            and follower is not None
            and not broker.is_fenced
            and not broker.is_shutting_down
            and follower.broker_epoch == broker.epoch
        )

    async def _ask(self, asked: list[_Proposed]) -> list[_Proposed]:
        """Returns the changes whose outcome is not known yet."""
        metadata = self._metadata
        first, _, change = asked[0]
        log.info(
            "in-sync sets change",
            partitions=len(asked),
            first=f"{first.topic}-{first.index}",
            from_set=list(asked[0][1].isr),
            to_set=list(change.isr),
        )
        command = ChangeInSyncSets(
            self._node_id,
            metadata.broker_epoch,
            tuple(
                InSyncChange(
                    UUID(bytes=partition.topic_id),
                    partition.index,
                    state.leader_epoch,
                    tuple(zip(change.isr, change.broker_epochs, strict=True)),
                    change.partition_epoch,
                    state.may_end_move,
                )
                for partition, state, change in asked
            ),
        )
        try:
            results = await metadata.submit(command)
        except KafkaError as error:
            # They stay pending: an earlier attempt, whose answer was lost, may have been carried out.
            log.warning("in-sync sets not changed", count=len(asked), error=error.message)
            return asked
        return [
            each for each, result in zip(asked, results, strict=True) if not self._is_decided(each, result)
        ]

    def _is_decided(self, asked: _Proposed, result: InSyncResult) -> bool:
        partition, state, change = asked
        if result.error == ErrorCode.NONE:
            if partition.replication is state and result.leader_epoch == state.leader_epoch:
                if result.partition_epoch > state.partition_epoch:
                    # Wait for the metadata: the controller may have decided by another minimum than this node has.
                    return False
                # They came first, as usual; or nothing has changed, and none will come.
                state.clear_pending(change)
                partition.in_sync_set_changed()
            return True
        if result.error in _TO_BE_SEEN:
            return False
        log.warning(
            "in-sync set not changed",
            topic=partition.topic,
            partition=partition.index,
            error=ErrorCode(result.error).name,
        )
        state.clear_pending(change)
        partition.count_replicas()
        return True
