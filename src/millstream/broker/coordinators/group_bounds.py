"""Limits the memory that groups take on a node: their number, what members send, committed offsets.

The limits are checked before a request reaches its coordinator. Bytes are added with each request, and recounted from
the groups every half minute; in between, a value that replaces another counts twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator

from millstream.coordinator.decision import Request
from millstream.coordinator.groups.classic_group import ClassicGroup
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.offsets import size_of as size_of_metadata
from millstream.coordinator.groups.records import MemberSubscription, PartitionSet, ShareMember
from millstream.coordinator.groups.requests import CommitOffsets, ConsumerHeartbeat, JoinGroup, SyncGroup
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.share_group import ShareGroup
from millstream.coordinator.groups.share_requests import OpenQueue, ShareHeartbeat
from millstream.coordinator.groups.state import Group, GroupState
from millstream.protocol.errors import ErrorCode, KafkaError

# A member without its data, and a group without members.
_MEMBER_BYTES = 1_000
_GROUP_BYTES = 1_500
_PARTITION_BYTES = 40
# How often the groups' bytes are recounted, and how many groups at a time.
_COUNT_SECONDS = 30.0
_COUNTED_AT_ONCE = 500


class GroupBounds:
    def __init__(self, settings: GroupSettings, states: Callable[[], list[GroupState]]) -> None:
        self._settings = settings
        self._states = states
        self.bytes = 0
        """An estimate between two counts."""
        self.refusals: dict[str, int] = dict.fromkeys(
            ("group.max.count", "group.max.bytes", "offsets.max.count", "offsets.max.bytes"), 0
        )

    def check(self, state: GroupState | None, request: Request[object]) -> None:
        """KafkaError when there is no room for what the request brings; `state` is that of its group's partition."""
        if isinstance(request, CommitOffsets):
            # First, because it is the most frequent by far.
            if state is not None:
                self._check_group(state, request.group_id)
                self._check_offsets(state, request)
            return
        if isinstance(request, JoinGroup):
            self._check_member(sum(len(name) + len(data) for name, data in request.protocols))
        elif isinstance(request, SyncGroup):
            for _, assignment in request.assignments:
                self._check_member(len(assignment))
            self._check_bytes(sum(len(assignment) for _, assignment in request.assignments))
            return
        elif isinstance(request, ConsumerHeartbeat | ShareHeartbeat):
            self._check_member(sum(map(len, request.topic_names or ())))
        elif not isinstance(request, OpenQueue):
            return
        if state is None:
            return
        self._check_group(state, request.group_id)
        if isinstance(request, JoinGroup):
            self._check_bytes(_MEMBER_BYTES + sum(len(data) for _, data in request.protocols))
        elif isinstance(request, ConsumerHeartbeat | ShareHeartbeat) and request.member_epoch >= 0:
            added = _added_by(state, request)
            if added:
                self._check_bytes(added)

    @property
    def groups(self) -> int:
        return sum(len(state.groups) + len(state.share_groups) for state in self._states())

    @property
    def offsets(self) -> int:
        return sum(len(state.offsets) for state in self._states())

    @property
    def offset_bytes(self) -> int:
        return sum(state.offsets.metadata_bytes for state in self._states())

    @property
    def regexes(self) -> int:
        return sum(
            len(group.regexes)
            for state in self._states()
            for group in state.groups.values()
            if isinstance(group, ConsumerGroup)
        )

    @property
    def members(self) -> int:
        return sum(_members(group) for state in self._states() for group in _all_groups(state))

    def _check_member(self, size: int) -> None:
        most = self._settings.group_member_max_bytes
        if size > most:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a member's metadata or assignment has {size} bytes; at most {most} are taken"
                " (group.member.max.bytes)",
            )

    def _check_group(self, state: GroupState, group_id: str) -> None:
        is_new = group_id not in state.groups and group_id not in state.share_groups
        if is_new and self.groups >= self._settings.group_max_count:
            raise self._refusal("group.max.count", self._settings.group_max_count)

    def _check_bytes(self, added: int) -> None:
        if self.bytes + added > self._settings.group_max_bytes:
            raise self._refusal("group.max.bytes", self._settings.group_max_bytes)
        self.bytes += added

    def _check_offsets(self, state: GroupState, request: CommitOffsets) -> None:
        added, is_new = 0, False
        for each in request.offsets:
            added += size_of_metadata(each.metadata)
            former = state.offsets.get(request.group_id, each.topic, each.partition)
            if former is None:
                is_new = True
            else:
                added -= size_of_metadata(former.metadata)
        # The totals go over all partitions. Mostly no offset is new and no metadata grows.
        if added > 0 and self.offset_bytes + added > self._settings.offsets_max_bytes:
            raise self._refusal("offsets.max.bytes", self._settings.offsets_max_bytes)
        if is_new and self.offsets >= self._settings.offsets_max_count:
            raise self._refusal("offsets.max.count", self._settings.offsets_max_count)

    def _refusal(self, setting: str, limit: int) -> KafkaError:
        self.refusals[setting] += 1
        return KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this node keeps no more for groups ({setting} is {limit})"
        )

    async def keep_counting(self, pause: Callable[[], Awaitable[None]]) -> None:
        """Recount periodically, with pauses for other work."""
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            for number, _ in enumerate(self.recount(), 1):
                if number % _COUNTED_AT_ONCE == 0:
                    await pause()

    def recount(self) -> Iterator[None]:
        """Count what the groups hold, group by group; the caller lets others have a turn in between."""
        counted = 0
        before = self.bytes
        for state in self._states():
            for group in _all_groups(state):
                counted += size_of(group)
                yield
        # Requests that came in meanwhile may have been counted or not.
        self.bytes = counted + max(self.bytes - before, 0)


def _all_groups(state: GroupState) -> list[Group | ShareGroup]:
    return [*state.groups.values(), *state.share_groups.values()]


def _members(group: Group | ShareGroup) -> int:
    return len(group.subscriptions) if isinstance(group, ConsumerGroup) else len(group.members)


def _added_by(state: GroupState, request: ConsumerHeartbeat | ShareHeartbeat) -> int:
    """The bytes of a new member, or of topics that it did not name before."""
    member: MemberSubscription | ShareMember | None = None
    if isinstance(request, ShareHeartbeat):
        shares = state.share_groups.get(request.group_id)
        member = None if shares is None else shares.members.get(request.member_id)
    elif isinstance(group := state.groups.get(request.group_id), ConsumerGroup):
        member = group.subscriptions.get(request.member_id)
    names = request.topic_names or frozenset()
    if member is None:
        return _MEMBER_BYTES + _total(names)
    return _total(names - member.topic_names)


def size_of(group: Group | ShareGroup) -> int:
    """A group's approximate size in bytes."""
    if isinstance(group, ClassicGroup):
        return _GROUP_BYTES + sum(
            _MEMBER_BYTES + len(member.assignment) + _total(data for _, data in member.protocols)
            for member in group.members.values()
        )
    assigned = sum(map(_partitions, group.targets.values())) + sum(
        _partitions(each.assigned) for each in group.currents.values()
    )
    members = group.members if isinstance(group, ShareGroup) else group.subscriptions
    regexes = () if isinstance(group, ShareGroup) else group.regexes.values()
    return (
        _GROUP_BYTES
        + _PARTITION_BYTES * assigned
        + sum(_MEMBER_BYTES + _total(each.topic_names) for each in members.values())
        + sum(_total(each.topics) for each in regexes)
    )


def _partitions(assigned: PartitionSet) -> int:
    return sum(map(len, assigned.values()))


def _total(sized: Iterable[bytes] | Iterable[str]) -> int:
    return sum(len(each) + _PARTITION_BYTES for each in sized)
