"""Which topics and partitions a backup or a restore is about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from millstream.backup.errors import BackupError


class _Numbered(Protocol):
    @property
    def index(self) -> int: ...


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[_Numbered]: ...


Topic = TypeVar("Topic", bound=_Named)


@dataclass(frozen=True, slots=True)
class Selection:
    """Partitions by topic, None for all of them; an empty selection is everything."""

    topics: Mapping[str, frozenset[int] | None] = field(default_factory=dict)

    def has(self, topic: str, index: int) -> bool:
        if not self.topics:
            return True
        wanted = self.topics.get(topic, frozenset())
        return wanted is None or index in wanted

    def of_cluster(self, topics: Iterable[Topic]) -> list[Topic]:
        """Those that are wanted; BackupError when a topic or a partition that is asked for is not there."""
        found = [topic for topic in topics if not self.topics or topic.name in self.topics]
        missing = set(self.topics) - {topic.name for topic in found}
        if missing:
            raise BackupError(f"there is no topic {min(missing)!r}")
        there: dict[str, set[int]] = {}
        for topic in found:
            there.setdefault(topic.name, set()).update(each.index for each in topic.partitions)
        for name, indexes in there.items():
            unknown = (self.topics.get(name) or frozenset()) - indexes
            if unknown:
                raise BackupError(f"topic {name!r} has no partition {min(unknown)}")
        return found
