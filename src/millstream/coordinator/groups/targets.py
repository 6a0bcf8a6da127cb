"""Targets of KIP-848 and share groups: small groups are assigned at once, large ones in a thread and taken in parts.

Meanwhile the group goes on with its former targets, and it may change. Then the new targets are taken as far as they
still fit, so that a group that never rests gets on too, and computed again. Members that join wait for their first
target. Nothing of this is in the log: after a restart the next heartbeat begins again.
"""

from collections.abc import Callable
from typing import TypeVar

from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.records import PartitionSet, RegexKey, ResolvedRegex
from millstream.coordinator.groups.regex import known_topics
from millstream.coordinator.groups.replies import Done
from millstream.coordinator.groups.requests import TargetsComputed
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.target_job import Assigning, TargetJob, Waiting, compute
from millstream.coordinator.groups.topics import TopicsView, metadata_hash
from millstream.coordinator.groups.turn import Timer, TimerKind, Turn
from millstream.protocol.errors import ErrorCode, KafkaError

# A group with more topics of members and partitions is assigned in a thread: this many take about three milliseconds.
ASSIGNED_AT_ONCE = 2_000
# How many partitions of new targets are taken in one turn, or how many waiting members with as many are answered.
TAKEN_AT_ONCE = 10_000
_PAUSE_MS = 1


AnyGroup = TypeVar("AnyGroup", ConsumerGroup, ShareGroup)


def refresh(turn: Turn, group: ConsumerGroup | ShareGroup, *, changed: bool) -> None:
    """Raise the group's epoch if its members or a subscribed topic changed, and assign for it."""
    changed |= resolve_regexes(turn, group)
    view = turn.state.topics
    if changed or group.checked_view is not view:
        awaits_topics = isinstance(group, ConsumerGroup) and group.awaits_topics
        group.checked_view = None if awaits_topics else view
        _raise_epoch(turn, group, changed=changed)
    _assign_if_due(turn, group)


def members_left(turn: Turn, group: ConsumerGroup | ShareGroup) -> None:
    """Raise the group's epoch: the next heartbeat assigns."""
    resolve_regexes(turn, group)
    _raise_epoch(turn, group, changed=True)


def _raise_epoch(turn: Turn, group: ConsumerGroup | ShareGroup, *, changed: bool) -> None:
    view = turn.state.topics
    new_hash = group.metadata_hash
    # In a large group that has changed the hash comes with its targets.
    if not changed or not _is_large(group, view):
        new_hash = metadata_hash(view, group.subscribed_among(view.topics))
    if changed or new_hash != group.metadata_hash:
        turn.write(*group.epoch_record(group.epoch + 1, new_hash))


def resolve_regexes(turn: Turn, group: ConsumerGroup | ShareGroup) -> bool:
    """Update the topics that match the group's regular expressions; True when any changed.

    An expression that has not been resolved against the new topics keeps its old ones until the next heartbeat.
    """
    if isinstance(group, ShareGroup):
        return False
    used = group.used_regexes
    if group.checked_view is turn.state.topics and used == group.regexes.keys():
        return False
    changed = False
    group.awaits_topics = False
    for pattern in sorted(group.regexes.keys() - used):
        turn.write(RegexKey(group.group_id, pattern), None)
    for pattern in sorted(used):
        former = group.regexes.get(pattern)
        if former is not None and group.checked_view is turn.state.topics:
            continue
        topics = known_topics(pattern, turn.state.topics.topics)
        if not isinstance(topics, frozenset):
            group.awaits_topics |= topics is None
            continue
        if former is None or former.topics != topics:
            version = 0 if former is None else former.version + 1
            turn.write(RegexKey(group.group_id, pattern), ResolvedRegex(topics, version, turn.now_ms))
            changed = True
    return changed


def answer_when_assigned(
    turn: Turn,
    group: AnyGroup,
    member_id: str,
    token: int,
    answer: Callable[[Turn, AnyGroup], None],
) -> None:
    if group.target_epoch >= group.epoch:
        answer(turn, group)
        return
    former = group.waiting.pop(member_id, None)
    if former is not None:
        turn.refuse(former.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the member sent a newer request")
    group.waiting[member_id] = Waiting(token, group.epoch, answer)


def computed(turn: Turn, request: TargetsComputed, token: int) -> None:
    turn.reply(token, Done())
    job, targets = request.job, request.targets
    group = turn.state.assigned_group(job.group_id)
    if group is None or group.assigning is None or group.assigning.job is not job:
        return
    if targets is None:
        group.assigning = None
        for waiting in group.waiting.values():
            turn.refuse(waiting.token, ErrorCode.COORDINATOR_NOT_AVAILABLE, "the assignment failed")
        group.waiting.clear()
        return
    group.assigning.take(targets)
    go_on(turn, group)


def go_on(turn: Turn, group: ConsumerGroup | ShareGroup) -> None:
    """Take some of the targets, then answer some of the members that wait for them; the rest in later turns."""
    if group.subscriptions:
        _assign_if_due(turn, group)
    assigning, room = group.assigning, TAKEN_AT_ONCE
    if assigning is not None and assigning.is_computed:
        room = _take(turn, group, assigning, room)
    ready = [m for m, waiting in group.waiting.items() if waiting.epoch <= group.target_epoch]
    while ready and room > 0:
        member_id = ready.pop()
        room -= _weight(group.target(member_id))
        waiting = group.waiting.pop(member_id)
        try:
            waiting.answer(turn, group)
        except KafkaError as error:
            turn.refuse(waiting.token, error.code, error.message)
    if ready or (group.assigning is not None and group.assigning.is_computed):
        turn.schedule(Timer(TimerKind.TARGETS, group.group_id), _PAUSE_MS)


def _assign_if_due(turn: Turn, group: ConsumerGroup | ShareGroup) -> None:
    """A share group waits until `share.assignment.interval.ms` after its former assignment."""
    if group.assigning is not None or group.target_epoch >= group.epoch:
        return
    if isinstance(group, ShareGroup):
        if (wait_ms := _wait_ms(turn, group)) > 0:
            turn.schedule(Timer(TimerKind.TARGETS, group.group_id), wait_ms)
            return
        group.assigned_at_ms = turn.now_ms
    _assign(turn, group)


def _wait_ms(turn: Turn, group: ShareGroup) -> int:
    if group.assigned_at_ms is None:
        return 0
    interval_ms = turn.group_config(group.group_id, "share.assignment.interval.ms")
    # The clock may have been set back.
    return min(interval_ms, group.assigned_at_ms + interval_ms - turn.now_ms)


def _assign(turn: Turn, group: ConsumerGroup | ShareGroup) -> None:
    job = group.job(turn.state.topics, turn.settings.group_consumer_assignors[0])
    group.assigning = assigning = Assigning(job)
    if _is_large(group, job.view):
        turn.start(job)
        return
    assigning.take(compute(job))
    while assigning.is_computed and group.assigning is assigning:
        _take(turn, group, assigning, TAKEN_AT_ONCE)


def _is_large(group: ConsumerGroup | ShareGroup, view: TopicsView) -> bool:
    if group.weight > ASSIGNED_AT_ONCE:
        return True
    partitions = sum(len(view.topics[name].partitions) for name in group.subscribed_among(view.topics))
    return group.weight + partitions > ASSIGNED_AT_ONCE


def _take(turn: Turn, group: ConsumerGroup | ShareGroup, assigning: Assigning, room: int) -> int:
    """How much room is left in this turn."""
    job = assigning.job
    while assigning.rest and room > 0:
        member_id, computed_target = assigning.rest.pop()
        target = _still_fitting(turn, group, job, member_id, computed_target)
        if target is not None:
            turn.write(*group.target_record(member_id, target))
            room -= _weight(target)
    if assigning.rest:
        return room
    group.assigning = None
    if group.epoch == job.epoch and assigning.metadata_hash != group.metadata_hash:
        turn.write(*group.epoch_record(job.epoch, assigning.metadata_hash))
    turn.write(*group.target_epoch_record(job.epoch))
    if group.subscriptions:
        _assign_if_due(turn, group)
    return room


def _weight(target: PartitionSet) -> int:
    """What it costs to write, in partitions: a member is as much as fifty of them, a topic as much as five."""
    return 50 + 5 * len(target) + sum(map(len, target.values()))


def _still_fitting(
    turn: Turn, group: ConsumerGroup | ShareGroup, job: TargetJob, member_id: str, target: PartitionSet
) -> PartitionSet | None:
    """Without what the member no longer subscribes to; None when it is gone."""
    if member_id not in group.subscriptions:
        return None
    if group.reads_as_in(job, member_id):
        return target
    topics, known = group.topics_of(member_id), turn.state.topics.topics_by_id
    return {
        topic_id: partitions
        for topic_id, partitions in target.items()
        if topic_id in known and known[topic_id].name in topics
    }
