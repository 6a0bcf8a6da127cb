"""A classic group: one member is the leader, which assigns the partitions on the client side.

Generation, protocol, leader, members and assignments are restored from the log. The rest (waiting replies,
the phase of an unfinished round, reserved ids) is lost in a restart, and members join again.
"""

import enum
from collections import Counter
from collections.abc import Mapping

import msgspec

from millstream.coordinator.groups.consumer_protocol import PROTOCOL_TYPE, decode_topics
from millstream.coordinator.groups.records import StoredClassicGroup, StoredMember
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.wire import MalformedRequest

# A classic group is one record, with all that its members say and are assigned: at most this much of each.
MOST_BYTES = 16 * 1024 * 1024
# How much of the members' metadata is read to find the topics in use.
_MOST_LOOKED_AT = 1024 * 1024


class Phase(enum.Enum):
    """EMPTY -> PREPARING (waiting for JoinGroup of all) -> COMPLETING (waiting for the leader) -> STABLE."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class ClassicMember(msgspec.Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    # In its first round: it may be dropped although it waits, because its client may never return.
    is_new: bool = False
    join_token: int | None = None
    sync_token: int | None = None

    @property
    def waits(self) -> bool:
        """Whether the member waits for an answer, so that its silence is normal."""
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class ClassicGroup(msgspec.Struct):
    group_id: str
    phase: Phase = Phase.EMPTY
    # When it became empty or stable, according to the log; offsets of an empty group expire from then on.
    state_ms: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    generation: int = 0
    leader: str | None = None
    members: dict[str, ClassicMember] = msgspec.field(default_factory=dict)
    instances: dict[str, str] = msgspec.field(default_factory=dict)
    pending_members: set[str] = msgspec.field(default_factory=set)
    unsynced: set[str] = msgspec.field(default_factory=set)
    # The first round of an empty group waits for more members even when all have joined.
    initial_round: bool = False
    size_bytes: int = 0
    """Of what the members say of themselves; the group is one record."""
    # How many members support a protocol: a JoinGroup must not go through all members.
    _supporters: Counter[str] = msgspec.field(default_factory=Counter)
    initial_remaining_ms: int = 0
    initial_grew: bool = False

    def replay(self, value: StoredClassicGroup) -> None:
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol_name = value.protocol
        self.leader = value.leader
        self.state_ms = value.state_ms
        self.phase = Phase.STABLE if value.members else Phase.EMPTY
        stored_ids = {stored.member_id for stored in value.members}
        for member_id in [member_id for member_id in self.members if member_id not in stored_ids]:
            self.remove(member_id)
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is None:
                self._restore(stored, value.protocol)
            else:
                member.assignment = stored.assignment

    def stored(self, now_ms: int, assignments: dict[str, bytes] | None = None) -> StoredClassicGroup:
        """This group as a record, with new assignments if they are given."""
        members = tuple(
            StoredMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(self.protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        protocol_type = self.protocol_type or ""
        return StoredClassicGroup(
            protocol_type, self.generation, self.protocol_name, self.leader, now_ms, members
        )

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self._put(member)
        self.pending_members.discard(member.member_id)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._count(member.protocols, -1)
        self.unsynced.discard(member_id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    @property
    def all_joined(self) -> bool:
        return not self.pending_members and all(m.join_token is not None for m in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def is_simple(self) -> bool:
        """Whether the group has only offsets and no members: its consumers assign themselves."""
        return self.protocol_type is None and not self.members and not self.pending_members

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(self._is_common(name) for name, _ in protocols)

    def change_protocols(self, member: ClassicMember, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols

    def select_protocol(self) -> str:
        """The commonly supported protocol that most members prefer; ties go to the one voted for first."""
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if self._is_common(name))] += 1
        return votes.most_common(1)[0][0]

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the consumers read; None when unknown, or when they are too long a list to look at."""
        if self.protocol_type != PROTOCOL_TYPE or (self.members and self.protocol_name is None):
            return None
        topics: set[str] = set()
        same = None
        room = _MOST_LOOKED_AT
        try:
            for member in self.members.values():
                metadata = member.metadata(self.protocol_name)
                # Mostly all members name the same topics: then one list is read.
                if same is None or not metadata.startswith(same, 2):
                    named, end = decode_topics(metadata)
                    topics |= named
                    same, room = metadata[2:end], room - end
                    if room < 0:
                        return None
        except MalformedRequest:
            return None
        return frozenset(topics)

    def _is_common(self, protocol: str) -> bool:
        return self._supporters[protocol] == len(self.members)

    def _put(self, member: ClassicMember) -> None:
        former = self.members.get(member.member_id)
        self._count(() if former is None else former.protocols, -1)
        self._count(member.protocols, 1)
        self.members[member.member_id] = member

    def _count(self, protocols: tuple[tuple[str, bytes], ...], change: int) -> None:
        self.size_bytes += change * size_of(protocols)
        for name in {name for name, _ in protocols}:
            self._supporters[name] += change
            if not self._supporters[name]:
                del self._supporters[name]

    def _restore(self, stored: StoredMember, protocol: str | None) -> None:
        protocols = ((protocol, stored.subscription),) if protocol is not None else ()
        timeout_ms = stored.session_timeout_ms
        self._put(
            ClassicMember(
                stored.member_id,
                stored.instance_id,
                stored.client_id,
                stored.client_host,
                timeout_ms,
                stored.rebalance_timeout_ms if stored.rebalance_timeout_ms >= 0 else timeout_ms,
                protocols,
                stored.assignment,
            )
        )
        if stored.instance_id is not None:
            self.instances[stored.instance_id] = stored.member_id


def size_of(protocols: tuple[tuple[str, bytes], ...]) -> int:
    return sum(len(metadata) for _, metadata in protocols)


def check_instance(instances: Mapping[str, str], member_id: str, instance_id: str | None) -> None:
    """Fence a sender that uses the instance id of a static member with an older member id."""
    if instance_id is None:
        return
    owner = instances.get(instance_id)
    if owner is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id!r}")
    if owner != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID, f"the instance id {instance_id!r} belongs to a newer member"
        )


def classic_member(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMember:
    """The member, if it is in this generation; otherwise a KafkaError."""
    check_instance(group.instances, member_id, instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has no member {member_id!r}")
    if generation != group.generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation} was sent, {group.generation} is current"
        )
    return member
