"""What the metrics show of the groups: members, committed offsets and the ends of their partitions.

Read straight from the coordinators' state, so a commit may be seen a moment before it is durable.
"""

from collections.abc import Sequence
from itertools import chain, islice

from millstream.broker.partitions.registry import Partitions
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.state import Group, GroupState
from millstream.observability.group_metrics import GroupSample, GroupSamples, OffsetSample


def samples_of(
    states: Sequence[GroupState], partitions: Partitions, max_groups: int, max_offsets: int
) -> GroupSamples:
    groups = chain.from_iterable(state.groups.values() for state in states)
    shown = [_group_sample(group) for group in islice(groups, max_groups)]
    committed = chain.from_iterable(state.offsets for state in states)
    offsets = []
    for group_id, topic, index, value in islice(committed, max_offsets):
        partition = partitions.get(topic, index)
        if partition is not None:
            offsets.append(OffsetSample(group_id, topic, index, value.offset, partition.high_watermark))
        elif partitions.is_elsewhere(topic, index):
            offsets.append(OffsetSample(group_id, topic, index, value.offset, None))
    too_many = (
        sum(len(state.groups) for state in states) - max_groups,
        sum(len(state.offsets) for state in states) - max_offsets,
    )
    return GroupSamples(shown, offsets, sum(max(0, excess) for excess in too_many))


def _group_sample(group: Group) -> GroupSample:
    if isinstance(group, ConsumerGroup):
        return GroupSample(group.group_id, group.state.value, len(group.subscriptions))
    return GroupSample(group.group_id, group.phase.value, len(group.members))
