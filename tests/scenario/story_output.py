"""Answers and records in one line each, with topic names instead of ids."""

from collections.abc import Mapping
from typing import Any

from millstream.coordinator.groups import records as r
from millstream.coordinator.groups import replies as a
from millstream.coordinator.groups.consumer_protocol import decode_assignment
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Answer, KnownTopics


def by_name(partitions: Mapping[str, frozenset[int]]) -> str:
    parts = [f"{topic}:{','.join(map(str, sorted(ps)))}" for topic, ps in sorted(partitions.items())]
    return "/".join(parts) or "nothing"


def by_id(partitions: r.PartitionSet, topics: KnownTopics) -> str:
    names = topics.topics_by_id
    return by_name({names[t].name if t in names else "gone": ps for t, ps in partitions.items()})


def answer_line(client: Any, answer: Answer, topics: KnownTopics) -> str:
    if isinstance(answer, KafkaError):
        return answer.code.name
    if isinstance(answer, a.Joined):
        return _joined(client, answer)
    if isinstance(answer, a.Synced):
        return f"synced {by_name(decode_assignment(answer.assignment))}"
    if isinstance(answer, a.Alive):
        return "alive" if answer.error is ErrorCode.NONE else answer.error.name
    if isinstance(answer, a.Left):
        return "left " + " ".join(f"{m.member_id or m.instance_id}:{m.error.name}" for m in answer.members)
    if isinstance(answer, a.Committed | a.OffsetsDeleted):
        kind = "committed" if isinstance(answer, a.Committed) else "offsets deleted"
        return f"{kind} " + " ".join(error.name for error in answer.errors)
    if isinstance(answer, a.Fetched):
        return "offsets " + (" ".join(_fetched(topic, offsets) for topic, offsets in answer.topics) or "none")
    if isinstance(answer, a.Listed):
        listed = sorted(answer.groups, key=lambda g: g.group_id)
        return "groups " + (" ".join(f"{g.group_id}:{g.type}:{g.state}" for g in listed) or "none")
    if isinstance(answer, a.Described):
        members = " ".join(
            f"{m.member_id}={by_name(decode_assignment(m.assignment))}" for m in answer.members
        )
        return f"{answer.state} {answer.protocol_type}/{answer.protocol_name} {members}".rstrip()
    if isinstance(answer, a.DescribedConsumerGroup):
        return _described(answer, topics)
    if isinstance(answer, a.ConsumerAlive):
        client.epoch = max(answer.member_epoch, 0)
        client.member_id = answer.member_id
        text = "unchanged" if answer.assigned is None else by_id(answer.assigned, topics)
        return f"epoch={answer.member_epoch} {text}"
    return type(answer).__name__.lower()


def record_line(record: r.GroupRecord, topics: KnownTopics) -> str:
    key, value = record.key, record.value
    name = type(key).__name__.removesuffix("Key").lower()
    rest = [str(getattr(key, slot)) for slot in key.__struct_fields__]
    return f"{name} {'/'.join(rest)} {'removed' if value is None else _value(value, topics)}"


def _value(value: r.Value, topics: KnownTopics) -> str:
    if isinstance(value, r.CommittedOffset):
        return f"= {value.offset}"
    if isinstance(value, r.StoredClassicGroup):
        members = " ".join(f"{m.member_id}={by_name(decode_assignment(m.assignment))}" for m in value.members)
        return f"generation={value.generation} leader={value.leader} {members}".rstrip()
    if isinstance(value, r.ConsumerGroupEpoch):
        return f"epoch={value.epoch}"
    if isinstance(value, r.MemberSubscription):
        regex = f" regex={value.topic_regex}" if value.topic_regex else ""
        kind = " classic" if value.classic else ""
        return f"topics={','.join(sorted(value.topic_names))}{regex}{kind}"
    if isinstance(value, r.TargetEpoch):
        return f"epoch={value.epoch}"
    if isinstance(value, r.Target):
        return by_id(value.partitions, topics)
    if isinstance(value, r.Current):
        revoking = f" revoking={by_id(value.revoking, topics)}" if value.revoking else ""
        return f"epoch={value.member_epoch} {value.state.name} {by_id(value.assigned, topics)}{revoking}"
    return f"topics={','.join(sorted(value.topics))}"


def _joined(client: Any, answer: a.Joined) -> str:
    client.member_id = answer.member_id
    if answer.error is not ErrorCode.NONE:
        return f"{answer.error.name} member={answer.member_id}"
    client.generation = answer.generation
    text = f"joined member={answer.member_id} generation={answer.generation} protocol={answer.protocol_name}"
    text += f" leader={answer.leader}" if answer.leader else ""
    if answer.members:
        text += f" members={','.join(m.member_id for m in answer.members)}"
    return text + (" skip-assignment" if answer.skip_assignment else "")


def _fetched(topic: str, offsets: tuple[a.FetchedOffset, ...]) -> str:
    return " ".join(f"{topic}:{o.partition}@{o.committed.offset if o.committed else -1}" for o in offsets)


def _described(answer: a.DescribedConsumerGroup, topics: KnownTopics) -> str:
    members = " ".join(
        f"{m.member_id}{'(classic)' if m.is_classic else ''}={by_id(m.assigned, topics)}->{by_id(m.target, topics)}"
        for m in answer.members
    )
    epochs = f"epoch={answer.group_epoch} assigned={answer.assignment_epoch}"
    return f"{answer.state} {epochs} {answer.assignor} {members}".rstrip()
