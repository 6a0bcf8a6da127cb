"""Expiry of offsets that are too old or belong to deleted topics."""

from collections.abc import Callable

import msgspec

from millstream.coordinator.groups import migration
from millstream.coordinator.groups.classic_group import Phase
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.offsets import ExpiryWalk
from millstream.coordinator.groups.records import ClassicGroupKey, CommittedOffset, OffsetKey
from millstream.coordinator.groups.state import Group
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn

# A topic that is still unknown this long after a commit was deleted, and its offsets could not be removed with it.
_GONE_AFTER_MS = 600_000
_OFFSETS_PER_TURN = 1_000
_PAUSE_MS = 1


class Ageing(msgspec.Struct, frozen=True):
    """Offsets of topics in use do not age; the others age from their commit, or from `since_ms` if later."""

    in_use: Callable[[str], bool] = lambda _: False
    since_ms: int = -1

    def expired(self, turn: Turn, key: OffsetKey, value: CommittedOffset) -> bool:
        if self.in_use(key.topic):
            return False
        if value.expire_ms >= 0:
            return turn.now_ms >= value.expire_ms
        return turn.now_ms - max(self.since_ms, value.commit_ms) >= turn.settings.offsets_retention_ms


def schedule_check(turn: Turn) -> None:
    turn.schedule(Timer(TimerKind.EXPIRE_OFFSETS), turn.settings.offsets_retention_check_interval_ms)


def expire(turn: Turn) -> None:
    """Remove expired offsets, then groups that have neither members nor offsets.

    One call checks a bounded number of offsets, so that other requests are decided in between.
    """
    walk = turn.state.expiry
    if not walk.groups:
        walk.begin(
            [*turn.state.groups, *(g for g in turn.state.offsets.groups() if g not in turn.state.groups)]
        )
    room = _OFFSETS_PER_TURN
    while walk.groups and room > 0:
        room -= _expire_some(turn, walk, room)
    if walk.groups:
        turn.schedule(Timer(TimerKind.EXPIRE_OFFSETS), _PAUSE_MS)
    else:
        schedule_check(turn)


def _expire_some(turn: Turn, walk: ExpiryWalk, limit: int) -> int:
    """Continue with the walk's current group; returns how much of `limit` was used."""
    group_id = walk.groups[-1]
    # The group and its offsets may have changed since the last step.
    group = turn.state.groups.get(group_id)
    ageing = _ageing(group)
    known = turn.state.topics.topics
    looked_at = 1
    for topic, partitions in walk.take(turn.state.offsets, limit):
        looked_at += len(partitions)
        is_gone = bool(known) and topic not in known
        for partition in partitions:
            key = OffsetKey(group_id, topic, partition)
            value = turn.state.offsets.get(group_id, topic, partition)
            if value is not None and (
                (is_gone and turn.now_ms - value.commit_ms >= _GONE_AFTER_MS)
                or (ageing is not None and ageing.expired(turn, key, value))
            ):
                turn.write(key, None)
    if walk.group_is_done:
        walk.next_group()
        if group is not None and not turn.state.offsets.has_any(group_id):
            remove_if_empty(turn, group)
    return looked_at


def forget_topics(turn: Turn, names: frozenset[str]) -> None:
    """Offsets of deleted topics are gone at once; their records are removed in steps."""
    offsets = turn.state.offsets
    for group_id in offsets.groups() if names else ():
        offsets.orphan(group_id, names)
    remove_orphans(turn)


def remove_orphans(turn: Turn) -> None:
    for key in turn.state.offsets.take_orphans(_OFFSETS_PER_TURN):
        turn.write(key, None)
    if turn.state.offsets.has_orphans:
        turn.schedule(Timer(TimerKind.ORPHANS), _PAUSE_MS)


def remove_if_empty(turn: Turn, group: Group) -> None:
    if isinstance(group, ConsumerGroup):
        if not group.subscriptions:
            migration.remove_group(turn, group)
    elif group.phase is Phase.EMPTY and not group.pending_members:
        turn.write(ClassicGroupKey(group.group_id), None)


def _ageing(group: Group | None) -> Ageing | None:
    """None when no offsets may expire, because the topics that the members read are unknown."""
    if group is None:
        return Ageing()
    if isinstance(group, ConsumerGroup):
        return Ageing(group.subscribes_to)
    if group.phase is Phase.EMPTY:
        return Ageing(since_ms=-1 if group.is_simple else group.state_ms)
    subscribed = group.subscribed_topics() if group.phase is Phase.STABLE else None
    return None if subscribed is None else Ageing(subscribed.__contains__)
