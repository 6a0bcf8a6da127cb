"""Offsets that nobody will come back for: too old, or of a topic that is gone."""

from dataclasses import dataclass

from millstream.coordinator.groups import migration
from millstream.coordinator.groups.classic_group import Phase
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.records import ClassicGroupKey, CommittedOffset, OffsetKey
from millstream.coordinator.groups.state import Group
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn


@dataclass(frozen=True, slots=True)
class Ageing:
    """Offsets of topics in use do not age; the others age from their commit, or from `since_ms` if later."""

    in_use: frozenset[str] = frozenset()
    since_ms: int = -1

    def expired(self, turn: Turn, key: OffsetKey, value: CommittedOffset) -> bool:
        if key.topic in self.in_use:
            return False
        if value.expire_ms >= 0:
            return turn.now_ms >= value.expire_ms
        return turn.now_ms - max(self.since_ms, value.commit_ms) >= turn.settings.offsets_retention_ms


def schedule_check(turn: Turn) -> None:
    turn.schedule(Timer(TimerKind.EXPIRE_OFFSETS), turn.settings.offsets_retention_check_interval_ms)


def expire(turn: Turn) -> None:
    """Remove what outlived the retention, then groups that have neither members nor offsets."""
    groups = turn.state.groups
    for group_id in sorted(groups.keys() | set(turn.state.offsets.groups())):
        group = groups.get(group_id)
        ageing = _ageing(group)
        if ageing is not None:
            for key, value in turn.state.offsets.items(group_id):
                if ageing.expired(turn, key, value):
                    turn.write(key, None)
        if group is not None and not turn.state.offsets.has_any(group_id):
            remove_if_empty(turn, group)
    schedule_check(turn)


def forget_topics(turn: Turn, names: frozenset[str]) -> None:
    for group_id in turn.state.offsets.groups():
        for topic in names.intersection(turn.state.offsets.topics(group_id)):
            for partition in turn.state.offsets.partitions(group_id, topic):
                turn.write(OffsetKey(group_id, topic, partition), None)


def remove_if_empty(turn: Turn, group: Group) -> None:
    if isinstance(group, ConsumerGroup):
        if not group.subscriptions:
            migration.remove_group(turn, group)
    elif group.phase is Phase.EMPTY and not group.pending_members:
        turn.write(ClassicGroupKey(group.group_id), None)


def _ageing(group: Group | None) -> Ageing | None:
    """None when nothing of the group may expire, because what its members read is not known."""
    if group is None:
        return Ageing()
    if isinstance(group, ConsumerGroup):
        return Ageing(group.subscribed_topics())
    if group.phase is Phase.EMPTY:
        return Ageing(since_ms=-1 if group.is_simple else group.state_ms)
    subscribed = group.subscribed_topics() if group.phase is Phase.STABLE else None
    return None if subscribed is None else Ageing(subscribed)
