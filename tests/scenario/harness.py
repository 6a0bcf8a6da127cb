"""A group coordinator in a box: time is a number, the log is a list, and a restart replays it through the codec."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import UUID

from millstream.coordinator.decision import Decision
from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.coordinator import GroupCoordinator
from millstream.coordinator.groups.records import GroupRecord
from millstream.coordinator.groups.regex import find_topics, remember
from millstream.coordinator.groups.replies import GroupReply
from millstream.coordinator.groups.requests import (
    ChangeTopics,
    ConsumerHeartbeat,
    GroupRequest,
    TargetsComputed,
)
from millstream.coordinator.groups.settings import GroupSettings
from millstream.coordinator.groups.target_job import TargetJob, compute
from millstream.protocol.errors import KafkaError


@dataclass(frozen=True)
class KnownTopic:
    name: str
    topic_id: UUID
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class KnownTopics:
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def topics_by_id(self) -> Mapping[UUID, KnownTopic]:
        return {topic.topic_id: topic for topic in self.topics.values()}

    def with_topic(self, name: str, partitions: int, new_id: UUID) -> "KnownTopics":
        former = self.topics.get(name)
        topic_id = former.topic_id if former else new_id
        return KnownTopics({**self.topics, name: KnownTopic(name, topic_id, tuple(range(partitions)))})

    def without_topic(self, name: str) -> "KnownTopics":
        return KnownTopics({known: topic for known, topic in self.topics.items() if known != name})


Answer = GroupReply | KafkaError


class Harness:
    def __init__(self, settings: GroupSettings | None = None, topics: KnownTopics | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.topics = topics or KnownTopics()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Answer] = {}
        self._ids = count(1)
        self._topic_ids = count(1)
        self._tokens = count(1)
        self.machine = self._build()
        self.jobs: list[TargetJob] = []
        self.last_records: list[GroupRecord] = []
        self._take(self.machine.loaded(self.now_ms))

    def submit(self, request: GroupRequest) -> int:
        token = next(self._tokens)
        if isinstance(request, ConsumerHeartbeat):
            self._match(request)
        try:
            self._take(self.machine.handle(request, token, self.now_ms))
        except KafkaError as error:
            self.answers[token] = error
        return token

    def call(self, request: GroupRequest) -> Answer:
        """The answer to a request that is answered at once."""
        return self.answers.pop(self.submit(request))

    def advance(self, duration_ms: int) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.machine.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._take(self.machine.on_time(self.now_ms))
        self.now_ms = end_ms

    def compute(self) -> None:
        """Report all targets that a thread of a node would have computed by now."""
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            self.call(TargetsComputed(job, compute(job)))

    def restart(self, keep_records: int | None = None) -> None:
        """A new coordinator from the log, or from a part of it: who waits for an answer never gets one."""
        if keep_records is not None:
            del self.log[keep_records:]
        self.machine = self._build()
        for key, value in self.log:
            record = self.machine.decode(key, value)
            assert record is not None
            self.machine.replay(record)
        self._take(self.machine.loaded(self.now_ms))

    def compact(self) -> None:
        """Keep the last record of every key, and no tombstones."""
        last = {key: index for index, (key, _) in enumerate(self.log)}
        self.log = [
            record
            for index, record in enumerate(self.log)
            if last[record[0]] == index and record[1] is not None
        ]

    def set_topic(self, name: str, partitions: int) -> None:
        self.topics = self.topics.with_topic(name, partitions, UUID(int=next(self._topic_ids)))
        self.call(ChangeTopics(self.topics))

    def delete_topic(self, name: str) -> None:
        self.topics = self.topics.without_topic(name)
        self.call(ChangeTopics(self.topics, frozenset({name})))

    def change_settings(self, **changes: object) -> None:
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]
        self.restart()

    def _match(self, request: ConsumerHeartbeat) -> None:
        """As a node does before it submits a heartbeat."""
        state = self.machine.state
        group = state.groups.get(request.group_id)
        known = group.regexes if isinstance(group, ConsumerGroup) else ()
        for pattern in {request.topic_regex or "", *known} - {""}:
            remember(pattern, state.topics.topics, find_topics(pattern, state.topics.topics))

    def _build(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, lambda: str(next(self._ids)), lambda: self.topics)

    def _take(self, decision: Decision[GroupRecord, GroupReply, TargetJob]) -> None:
        self.last_records = list(decision.records)
        self.log.extend(map(self.machine.encode, decision.records))
        self.jobs.extend(decision.effects)
        for reply in decision.replies:
            assert reply.token not in self.answers, "a request is answered once"
            self.answers[reply.token] = reply.answer
