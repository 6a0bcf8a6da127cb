"""Consumer groups: lists and describes them, and changes their offsets from outside."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.client.admin.topics import TopicAdmin
from millstream.client.admin.values import GroupInfo, GroupListing, GroupMember, GroupPosition
from millstream.client.errors import ClientError, GroupChangedError, UnknownGroupError, from_code
from millstream.client.positions import Place, TopicPartition
from millstream.protocol.errors import ErrorCode
from millstream.protocol.wire import MalformedRequest, Reader

# The newest versions whose requests hold a single group and name topics instead of giving their ids.
_OFFSET_FETCH_VERSION, _OFFSET_COMMIT_VERSION = 7, 9
_CONSUMER_PROTOCOL = ("consumer", "")
_NOT_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupAdmin(TopicAdmin):
    def list_groups(self) -> list[GroupListing]:
        """The consumer groups of all brokers, by name."""
        cluster = self._cluster

        def ask() -> dict[str, GroupListing]:
            found: dict[str, GroupListing] = {}
            cluster.metadata([])
            for node in sorted(cluster.addresses):
                reply = cluster.node(node).call("list_groups")
                if reply.error_code:
                    raise from_code(f"cannot list the groups of broker {node}", reply.error_code)
                for each in reply.groups:
                    if each.protocol_type in _CONSUMER_PROTOCOL:
                        state, kind = getattr(each, "group_state", ""), getattr(each, "group_type", "")
                        found[each.group_id] = GroupListing(each.group_id, state, kind)
            return found

        return [each for _, each in sorted(cluster.patiently("cannot list groups", ask).items())]

    def describe_group(self, group: str) -> GroupInfo:
        """A group's members and positions; UnknownGroupError when it does not exist."""
        found = self.describe_groups([group])
        if not found:
            raise UnknownGroupError(f"there is no group {group!r}", ErrorCode.GROUP_ID_NOT_FOUND.name)
        return found[0]

    def describe_groups(self, groups: Iterable[str]) -> list[GroupInfo]:
        """The groups that exist, with their committed offsets and the ends of their partitions."""
        described = {group: self._described(group) for group in dict.fromkeys(groups)}
        known = {group: each for group, each in described.items() if each is not None}
        committed = {group: self.committed_offsets(group) for group in known}
        places = {place for each in known.values() for member in each[2] for place in member.assignment}
        places = places.union(*committed.values())
        ends = self.known_offsets(places) if places else {}
        return [_info(group, *known[group], committed[group], ends) for group in known]

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets by partition: each is the offset of the next message to read."""
        reply = self._ask_coordinator(
            group, f"cannot read the offsets of group {group!r}", "offset_fetch", _OFFSET_FETCH_VERSION,
            group_id=group, topics=None,
        )  # fmt: skip
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in reply.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    def set_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Let a group without members continue at other offsets. GroupChangedError while it has members."""
        action = f"cannot set the offsets of group {group!r}"
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), offset in offsets.items():
            each = {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            topics.setdefault(topic, []).append(each)
        wanted = [{"name": name, "partitions": each} for name, each in topics.items()]
        reply = self._ask_coordinator(
            group, action, "offset_commit", _OFFSET_COMMIT_VERSION, group_id=group, topics=wanted
        )
        try:
            _raise_first_place(action, reply.topics)
        except GroupChangedError as error:
            raise GroupChangedError(f"{action}: it has members; stop them first", error.code) from error

    def delete_offsets(self, group: str, places: Iterable[Place]) -> None:
        """Delete a group's committed offsets of partitions that none of its members reads."""
        action = f"cannot delete offsets of group {group!r}"
        topics: dict[str, list[dict[str, int]]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append({"partition_index": index})
        wanted = [{"name": name, "partitions": each} for name, each in topics.items()]
        reply = self._ask_coordinator(group, action, "offset_delete", group_id=group, topics=wanted)
        _raise_first_place(action, reply.topics)

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets. It must have no members; UnknownGroupError when it does not exist."""
        action = f"cannot delete group {group!r}"
        (result,) = self._ask_coordinator(group, action, "delete_groups", groups_names=[group]).results
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise GroupChangedError(f"{action}: it has active members; stop them first", "NON_EMPTY_GROUP")
        if result.error_code:
            raise _group_error(group, action, result.error_code)

    def _described(self, group: str) -> "tuple[str, tuple[str, str], tuple[GroupMember, ...]] | None":
        """The group's state, its type and assignor, and its members; None when it does not exist. Asks first with the
        newer protocol's request, which knows only groups of the newer protocol."""
        action = f"cannot describe group {group!r}"
        try:
            (found,) = self._ask_coordinator(
                group, action, "consumer_group_describe", skip=_NOT_CONSUMER_GROUP, group_ids=[group]
            ).groups
        except ClientError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION.name:
                raise
            found = None
        if found is not None and not found.error_code:
            return (
                found.group_state,
                ("consumer", found.assignor_name),
                _sorted(map(_consumer_member, found.members)),
            )
        (found,) = self._ask_coordinator(
            group, action, "describe_groups", skip=(ErrorCode.GROUP_ID_NOT_FOUND,), groups=[group]
        ).groups
        if found.error_code or found.group_state == "Dead":
            return None
        return (
            found.group_state,
            ("classic", found.protocol_data),
            _sorted(map(_classic_member, found.members)),
        )

    def _ask_coordinator(
        self,
        group: str,
        action: str,
        name: str,
        version: int | None = None,
        *,
        skip: Sequence[ErrorCode] = (),
        **fields: Any,
    ) -> Any:
        """The coordinator's reply. Asks again while the coordinator moves or loads; raises the error of the reply or of
        a group in it, unless in `skip`."""
        cluster = self._cluster

        def ask() -> Any:
            reply = cluster.coordinator(group).call(name, version, **fields)
            for each in (reply, *getattr(reply, "groups", ())):
                if (code := getattr(each, "error_code", 0)) and code not in skip:
                    raise _group_error(group, action, code)
            parts = [part for topic in getattr(reply, "topics", ()) for part in topic.partitions]
            for each in (*parts, *getattr(reply, "results", ())):
                # Errors that are not retriable are left to the caller.
                if each.error_code and (failure := from_code(action, each.error_code)).retriable:
                    raise failure
            return reply

        return cluster.patiently(action, ask)


def _group_error(group: str, action: str, code: int) -> ClientError:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return UnknownGroupError(f"there is no group {group!r}", ErrorCode.GROUP_ID_NOT_FOUND.name)
    return from_code(action, code)


def _raise_first_place(action: str, topics: Sequence[Any]) -> None:
    for topic in topics:
        for each in topic.partitions:
            if each.error_code:
                raise from_code(f"{action} for {topic.name}:{each.partition_index}", each.error_code)


def _consumer_member(member: Any) -> GroupMember:
    assigned = [
        TopicPartition(topic.topic_name, index)
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    ]
    return _member(member, member.instance_id, assigned)


def _classic_member(member: Any) -> GroupMember:
    return _member(member, member.group_instance_id, _assigned(memoryview(member.member_assignment)))


def _member(member: Any, instance_id: str | None, assigned: Sequence[TopicPartition]) -> GroupMember:
    host = member.client_host.removeprefix("/")
    return GroupMember(member.member_id, instance_id, member.client_id, host, tuple(sorted(assigned)))


def _sorted(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda each: (each.client_id, each.member_id)))


def _assigned(data: memoryview) -> list[TopicPartition]:
    """The partitions in Kafka's ConsumerProtocolAssignment; none while a group rebalances, or in another format."""
    reader = Reader(data)
    try:
        reader.i16()
        return [
            TopicPartition(topic, reader.i32())
            for _ in range(reader.array_length())
            for topic in (reader.string(),)
            for _ in range(reader.array_length())
        ]
    except MalformedRequest:
        return []


def _info(
    group: str,
    state: str,
    kind: tuple[str, str],
    members: tuple[GroupMember, ...],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> GroupInfo:
    owners = {place: member for member in members for place in member.assignment}
    positions = tuple(
        GroupPosition(place, committed.get(place), ends.get(place), owners.get(place))
        for place in sorted(owners.keys() | committed.keys())
    )
    return GroupInfo(group, state, *kind, members, positions)
