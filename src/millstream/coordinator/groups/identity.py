"""Is the sender who it says it is?"""

from collections.abc import Mapping

from millstream.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from millstream.protocol.errors import ErrorCode, KafkaError


def check_instance(instances: Mapping[str, str], member_id: str, instance_id: str | None) -> None:
    """A static member is known by its instance id; whoever uses it with an older member id is fenced."""
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
    """The member of this generation, or the reason why it is none."""
    check_instance(group.instances, member_id, instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has no member {member_id!r}")
    if generation != group.generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION, f"generation {generation} was sent, {group.generation} is current"
        )
    return member
