"""Checks in-sync and eligible sets in every committed change of the metadata."""

from collections.abc import Callable, Iterable
from uuid import UUID

from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
)

State = PartitionCreated | PartitionChanged
Place = tuple[UUID, int]


class InSyncWatch:
    """Members of both sets are replicas that are alive, the leader is in sync, and only a leader adds members."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._partitions: dict[Place, State] = {}
        self._usable: dict[int, bool] = {}

    def records_came(self, records: Iterable[MetadataRecord]) -> None:
        """Checks one entry: a change of brokers and its consequences for partitions are one change."""
        touched: dict[Place, None] = {}
        has_lost = False
        for record in records:
            if isinstance(record, PartitionChanged | PartitionCreated):
                place = record.topic_id, record.index
                before = self._partitions.get(place)
                self._partitions[place] = record
                touched[place] = None
                if before is not None:
                    self._check_growth(before, record)
            elif isinstance(record, BrokerRegistered | BrokerChanged):
                self._usable[record.broker_id] = not (record.is_fenced or record.is_shutting_down)
                has_lost |= not self._usable[record.broker_id]
            elif isinstance(record, BrokerUnregistered):
                self._usable.pop(record.broker_id, None)
                has_lost = True
            elif isinstance(record, TopicDeleted):
                for place in [place for place in self._partitions if place[0] == record.topic_id]:
                    del self._partitions[place]
                    touched.pop(place, None)
        for place in self._partitions if has_lost else touched:
            self._check(self._partitions[place])

    def _check(self, state: State) -> None:
        replicas, members, eligible = set(state.replicas), set(state.isr), set(state.elr)
        if not members <= replicas or len(members) != len(state.isr):
            self._violated(f"{_name(state)}: the in-sync set holds other nodes than replicas: {state}")
        if state.leader != NO_LEADER and state.leader not in members:
            self._violated(f"{_name(state)}: the leader is not in sync: {state}")
        if not eligible <= replicas - members:
            self._violated(
                f"{_name(state)}: the eligible set holds other nodes than out-of-sync replicas: {state}"
            )
        gone = [each for each in state.isr if not self._usable.get(each, False)]
        if gone:
            self._violated(f"{_name(state)}: {gone} are in sync though fenced, stopping or unknown: {state}")

    def _check_growth(self, before: State, after: State) -> None:
        """Without a leader to observe them, no replica joins the set except the one elected."""
        added = set(after.isr) - set(before.isr) - {after.leader}
        is_moved = bool(before.adding or before.removing) and not (after.adding or after.removing)
        if added and (before.leader == NO_LEADER or (after.leader != before.leader and not is_moved)):
            self._violated(
                f"{_name(after)}: {sorted(added)} joined the in-sync set without a leader: {before}, then {after}"
            )


def _name(state: State) -> str:
    return f"partition {state.index} of topic {state.topic_id}"
