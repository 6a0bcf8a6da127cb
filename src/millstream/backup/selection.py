"""Which topics and partitions a backup or a restore is about."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.backup.errors import BackupError
from millstream.protocol.metadata import TopicMetadata


def name_of(topic: TopicMetadata) -> str:
    """Of one that exists."""
    return topic.name or ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions by topic, None for all of them; an empty selection is everything."""

    topics: Mapping[str, frozenset[int] | None] = field(default_factory=dict)

    def has(self, topic: str, index: int) -> bool:
        if not self.topics:
            return True
        wanted = self.topics.get(topic, frozenset())
        return wanted is None or index in wanted

    def check(self, there: Iterable[tuple[str, int]]) -> None:
        """BackupError when a topic or a partition that is asked for is not there."""
        known: dict[str, set[int]] = {}
        for name, index in there:
            known.setdefault(name, set()).add(index)
        for name, indexes in self.topics.items():
            if name not in known:
                raise BackupError(f"there is no topic {name!r}")
            if unknown := (indexes or frozenset()) - known[name]:
                raise BackupError(f"topic {name!r} has no partition {min(unknown)}")

    def of_cluster(self, topics: Mapping[str, TopicMetadata]) -> list[TopicMetadata]:
        """Those that are wanted, by name."""
        self.check((name, each.partition) for name, topic in topics.items() for each in topic.partitions)
        return [topics[name] for name in sorted(self.topics or topics)]
