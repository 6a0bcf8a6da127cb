"""What groups need to know about topics; implemented by the cluster's metadata image."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol
from uuid import UUID

import msgspec


class Topic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Collection[object]: ...


class TopicsView(Protocol):
    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]: ...

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of single groups."""
        ...


class NoTopics(msgspec.Struct, frozen=True):
    """Before the first metadata image arrives."""

    topics: Mapping[str, Topic] = msgspec.field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = msgspec.field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)


def metadata_hash(view: TopicsView, names: Iterable[str]) -> int:
    """Changes when a subscribed topic is created, deleted, recreated or grows. 0 when none exists."""
    known = view.topics
    # Hashes of tuples of numbers are the same in every process. A sum needs no order, which takes longest to make.
    total = sum(
        hash((topic.topic_id.int, len(topic.partitions))) for name in names if (topic := known.get(name))
    )
    return (total + (1 << 63)) % (1 << 64) - (1 << 63)
