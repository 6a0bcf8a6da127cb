"""OffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Callable

from millstream.coordinator.groups import classic_rebalance
from millstream.coordinator.groups.classic_group import ClassicGroup, Phase, check_instance, classic_member
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_protocol import PROTOCOL_TYPE
from millstream.coordinator.groups.records import CommittedOffset, OffsetKey
from millstream.coordinator.groups.replies import Committed, Fetched, FetchedOffset, OffsetsDeleted
from millstream.coordinator.groups.requests import CommitOffsets, DeleteOffsets, FetchOffsets, OffsetToCommit
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.state import Group
from millstream.coordinator.groups.turn import Turn
from millstream.protocol.errors import ErrorCode, KafkaError

# The size of one commit's record without its strings, counted against the largest batch.
_RECORD_BYTES = 64


def most_offsets(settings: GroupSettings) -> int:
    """The most offsets that fit into a batch, even with the shortest strings."""
    return settings.offset_commit_max_bytes // _RECORD_BYTES


def commit(turn: Turn, request: CommitOffsets, token: int) -> None:
    _check_commit(turn, request)
    if not _fits_in_a_batch(request, turn.settings):
        turn.reply(token, Committed((ErrorCode.INVALID_COMMIT_OFFSET_SIZE,) * len(request.offsets)))
        return
    expire_ms = turn.now_ms + request.retention_ms if request.retention_ms >= 0 else -1
    errors = []
    for wanted in request.offsets:
        error = _check_offset(wanted, turn.settings)
        errors.append(error)
        if error is ErrorCode.NONE:
            turn.write(
                OffsetKey(request.group_id, wanted.topic, wanted.partition),
                CommittedOffset(wanted.offset, wanted.leader_epoch, wanted.metadata, turn.now_ms, expire_ms),
            )
    turn.reply(token, Committed(tuple(errors)))


def fetch(turn: Turn, request: FetchOffsets, token: int) -> None:
    _check_fetch(turn.state.groups.get(request.group_id), request)
    offsets = turn.state.offsets
    group_id = request.group_id
    wanted = request.topics
    if wanted is None:
        wanted = tuple((topic, offsets.partitions(group_id, topic)) for topic in offsets.topics(group_id))
    turn.reply(
        token,
        Fetched(
            tuple(
                (topic, tuple(FetchedOffset(p, offsets.get(group_id, topic, p)) for p in partitions))
                for topic, partitions in wanted
            )
        ),
    )


def delete(turn: Turn, request: DeleteOffsets, token: int) -> None:
    group = turn.state.groups.get(request.group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
    in_use = _topics_in_use(group)
    errors = []
    for topic, partition in request.partitions:
        if in_use(topic):
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(ErrorCode.NONE)
        if turn.state.offsets.get(request.group_id, topic, partition) is not None:
            turn.write(OffsetKey(request.group_id, topic, partition), None)
    turn.reply(token, OffsetsDeleted(tuple(errors)))


def _check_commit(turn: Turn, request: CommitOffsets) -> None:
    group = turn.state.groups.get(request.group_id)
    if group is None:
        if request.generation_or_epoch >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {request.group_id!r} has no members")
    elif isinstance(group, ConsumerGroup):
        _check_consumer_commit(group, request)
    else:
        _check_classic_commit(turn, group, request)


def _check_classic_commit(turn: Turn, group: ClassicGroup, request: CommitOffsets) -> None:
    claims = request.generation_or_epoch >= 0 or request.member_id or request.instance_id is not None
    if not claims:
        if group.phase is not Phase.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members; only they may commit")
        return
    if request.generation_or_epoch < 0 and group.phase is Phase.EMPTY:
        return
    member = classic_member(group, request.member_id, request.instance_id, request.generation_or_epoch)
    if group.phase is Phase.COMPLETING_REBALANCE:
        # No member owns a partition in this generation yet.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    if not member.waits:
        classic_rebalance.keep_session(turn, group, member)


def _check_consumer_commit(group: ConsumerGroup, request: CommitOffsets) -> None:
    if request.generation_or_epoch < 0 and not group.subscriptions:
        return
    check_instance(group.instances, request.member_id, request.instance_id)
    subscription = group.subscriptions.get(request.member_id)
    if subscription is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
    current = group.current(request.member_id).member_epoch == request.generation_or_epoch
    if subscription.classic is not None:
        if not current:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return
    if not request.knows_member_epochs:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "a KIP-848 member commits with OffsetCommit 9 or later"
        )
    if not current:
        raise KafkaError(
            ErrorCode.STALE_MEMBER_EPOCH,
            f"epoch {request.generation_or_epoch} was sent, "
            f"{group.current(request.member_id).member_epoch} is current",
        )


def _check_offset(wanted: OffsetToCommit, settings: GroupSettings) -> ErrorCode:
    limit = settings.offset_metadata_max_bytes
    if len(wanted.metadata) > limit or (
        len(wanted.metadata) * 4 > limit and len(wanted.metadata.encode()) > limit
    ):
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def _fits_in_a_batch(request: CommitOffsets, settings: GroupSettings) -> bool:
    room = settings.offset_commit_max_bytes
    per_record = _RECORD_BYTES + len(request.group_id)
    if per_record * len(request.offsets) > room:
        return False
    limit = settings.offset_metadata_max_bytes
    strings = sum(
        len(o.topic) + (len(o.metadata.encode()) if len(o.metadata) <= limit else 0) for o in request.offsets
    )
    return per_record * len(request.offsets) + strings <= room


def _check_fetch(group: Group | None, request: FetchOffsets) -> None:
    if not isinstance(group, ConsumerGroup) or (request.member_id is None and request.member_epoch < 0):
        return
    if request.member_epoch < 0 and not group.subscriptions:
        return
    if request.member_id not in group.subscriptions:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {request.member_id!r} in the group")
    if group.current(request.member_id).member_epoch != request.member_epoch:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)


def _topics_in_use(group: Group) -> Callable[[str], bool]:
    if isinstance(group, ConsumerGroup):
        return group.subscribes_to
    if group.phase is Phase.EMPTY:
        return lambda _: False
    topics = group.subscribed_topics() if group.protocol_type == PROTOCOL_TYPE else None
    if topics is None:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group.group_id!r} has members")
    return topics.__contains__
