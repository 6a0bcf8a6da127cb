"""Checks every committed change of a leader."""

from collections.abc import Callable
from uuid import UUID

from millstream.cluster.metadata.image import NO_LEADER
from millstream.cluster.metadata.records import (
    ConfigChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    TopicDeleted,
    decode_records,
)
from millstream.cluster.raft.entries import Entry, EntryKind

_UNCLEAN = "unclean.leader.election.enable"

State = PartitionCreated | PartitionChanged


class ElectionWatch:
    """Without unclean elections, no replica leads that may lack acknowledged records; epochs never go back."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self.elections = 0
        self._violated = violated
        self._partitions: dict[tuple[UUID, int], State] = {}
        self.records_came: Callable[[list[MetadataRecord]], None] = lambda _records: None
        """Called with the records of every entry, for other watches."""

    def entry_came(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.DATA:
            return
        records = decode_records(entry.data)
        self.records_came(records)
        for record in records:
            if isinstance(record, PartitionChanged | PartitionCreated):
                place = record.topic_id, record.index
                before = self._partitions.get(place)
                self._partitions[place] = record
                if before is not None:
                    self._check(before, record)
            elif isinstance(record, TopicDeleted):
                for place in [place for place in self._partitions if place[0] == record.topic_id]:
                    del self._partitions[place]
            elif isinstance(record, ConfigChanged) and record.key == _UNCLEAN and record.value == "true":
                self._violated("unclean elections were enabled without a request")

    def _check(self, before: State, after: State) -> None:
        name = f"partition {after.index} of topic {after.topic_id}"
        if after.leader_epoch < before.leader_epoch or after.partition_epoch <= before.partition_epoch:
            self._violated(f"{name}: an epoch went back: {before}, then {after}")
        if after.leader in (before.leader, NO_LEADER):
            return
        self.elections += 1
        if after.leader_epoch == before.leader_epoch:
            self._violated(f"{name}: another leader in the same epoch: {before}, then {after}")
        if not _may_lead(before, after):
            self._violated(f"{name}: an unclean election: {before}, then {after}")


def _may_lead(before: State, after: State) -> bool:
    if after.leader in before.isr or after.leader in before.elr or after.leader == before.last_known_leader:
        return True
    # After unclean stops, the reporting replica with the most records may lead (KIP-966). The rest of a partition leads
    # only if brokers with all records were given up, which is not simulated.
    if any(
        each.broker_id == after.leader and not each.is_left for each in getattr(before, "last_known_elr", ())
    ):
        return True
    # The former leader ended a reassignment with its last change of the in-sync set, and left.
    was_moving = bool(before.adding or before.removing)
    is_moving = bool(after.adding or after.removing)
    return was_moving and not is_moving and before.leader != NO_LEADER and after.leader in after.isr
