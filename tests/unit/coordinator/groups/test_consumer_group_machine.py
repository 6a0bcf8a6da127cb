"""KIP-848 groups under random clients: no partition is ever consumed by two of them."""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from millstream.coordinator.groups.consumer_group import ConsumerGroup
from millstream.coordinator.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from millstream.coordinator.groups.partition_sets import from_pairs, pairs
from millstream.coordinator.groups.replies import Alive, Committed, ConsumerAlive, Fetched, Joined, Synced
from millstream.coordinator.groups.requests import (
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberHeartbeat,
    OffsetToCommit,
    SyncGroup,
)
from millstream.coordinator.groups.settings import GroupSettings, MigrationPolicy
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Harness

GROUP = "g"
NEVER_MS = 2**31 - 1
SESSION_MS = 45_000
TOPICS = ("a", "b", "c")
Place = tuple[UUID, int]


@dataclass(eq=False)
class Consumer:
    """A client that follows the protocol, as slowly as the test wants."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    assigned: set[Place] = field(default_factory=set)
    last_heard_ms: int = 0
    full: bool = True

    def lose_everything(self) -> None:
        self.epoch, self.full = 0, True
        self.owned.clear()
        self.assigned.clear()


@dataclass(eq=False)
class ClassicConsumer:
    """A cooperative client of the classic protocol in the same group."""

    name: str
    topics: frozenset[str]
    member_id: str = ""
    generation: int = -1
    owned: set[Place] = field(default_factory=set)
    last_heard_ms: int = 0

    def lose_everything(self) -> None:
        self.member_id, self.generation = "", -1
        self.owned.clear()


class ConsumerGroupMachine(RuleBasedStateMachine):
    consumers = Bundle("consumers")
    classics = Bundle("classics")

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(
            GroupSettings(
                group_initial_rebalance_delay_ms=0,
                group_max_session_timeout_ms=NEVER_MS,
                group_consumer_migration_policy=MigrationPolicy.UPGRADE,
            )
        )
        self.alive: list[Consumer | ClassicConsumer] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.highest_epoch = 0
        self.born = 0

    @initialize(partitions=st.integers(1, 6), classic_members=st.integers(0, 2))
    def start(self, partitions: int, classic_members: int) -> None:
        self.harness.set_topic("a", partitions)
        if classic_members:
            self._start_as_classic_group(partitions, classic_members)

    @rule(target=consumers, topics=st.frozensets(st.sampled_from(TOPICS), min_size=1), static=st.booleans())
    def new_consumer(self, topics: frozenset[str], static: bool) -> Consumer:
        self.born += 1
        name = f"m{self.born}"
        consumer = Consumer(name, topics, f"i-{name}" if static else None)
        self.alive.append(consumer)
        return consumer

    @rule(target=classics, topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
    def new_classic(self, topics: frozenset[str]) -> ClassicConsumer:
        self.born += 1
        classic = ClassicConsumer(f"k{self.born}", topics)
        self.alive.append(classic)
        return classic

    @rule(consumer=consumers, answer_lost=st.booleans())
    def heartbeat(self, consumer: Consumer, answer_lost: bool) -> None:
        full = consumer.full or consumer.epoch == 0
        answer = self.harness.call(
            ConsumerHeartbeat(
                GROUP,
                consumer.member_id,
                consumer.epoch,
                instance_id=consumer.instance_id,
                rebalance_timeout_ms=NEVER_MS if full else None,
                topic_names=consumer.topics if full else None,
                owned=from_pairs(consumer.owned),
            )
        )
        if answer_lost:
            consumer.full = True
            if not isinstance(answer, KafkaError):
                consumer.last_heard_ms = self.harness.now_ms
            return
        consumer.full = False
        if isinstance(answer, KafkaError):
            assert answer.code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ), answer
            consumer.lose_everything()
            return
        assert isinstance(answer, ConsumerAlive)
        assert answer.member_epoch >= consumer.epoch
        consumer.epoch = answer.member_epoch
        consumer.last_heard_ms = self.harness.now_ms
        if answer.assigned is not None:
            consumer.assigned = set(pairs(answer.assigned))
            if not consumer.owned - consumer.assigned:
                consumer.owned = set(consumer.assigned)

    @rule(consumer=consumers)
    def give_back(self, consumer: Consumer) -> None:
        consumer.owned &= consumer.assigned
        consumer.owned |= consumer.assigned

    @rule(consumer=consumers, topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
    def subscribe(self, consumer: Consumer, topics: frozenset[str]) -> None:
        consumer.topics, consumer.full = topics, True

    @rule(consumer=consumes(consumers))
    def crash(self, consumer: Consumer) -> None:
        self.alive.remove(consumer)

    @rule(consumer=consumers)
    def leave(self, consumer: Consumer) -> None:
        if consumer.epoch > 0:
            self.harness.call(
                ConsumerHeartbeat(GROUP, consumer.member_id, -1, instance_id=consumer.instance_id)
            )
            consumer.lose_everything()

    @rule(consumer=consumers)
    def restart_static(self, consumer: Consumer) -> None:
        if consumer.instance_id is not None and consumer.epoch > 0:
            self.harness.call(
                ConsumerHeartbeat(GROUP, consumer.member_id, -2, instance_id=consumer.instance_id)
            )
            self.born += 1
            consumer.member_id = f"m{self.born}"
            consumer.lose_everything()

    @rule(classic=classics)
    def classic_round(self, classic: ClassicConsumer) -> None:
        if classic.member_id and not self._told_to_join(classic):
            return
        names = self._names(classic.owned)
        metadata = encode_subscription(Subscription(classic.topics, names, version=1))
        join = JoinGroup(
            GROUP,
            classic.member_id,
            None,
            classic.name,
            "",
            "consumer",
            (("cooperative-sticky", metadata),),
            SESSION_MS,
            NEVER_MS,
            requires_known_member_id=False,
        )
        group = self.harness.machine.state.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or not group.subscriptions:
            return
        answer = self.harness.call(join)
        if not isinstance(answer, Joined):
            classic.lose_everything()
            return
        classic.member_id, classic.generation = answer.member_id, answer.generation
        synced = self.harness.call(SyncGroup(GROUP, classic.member_id, classic.generation))
        if isinstance(synced, Synced):
            classic.owned = set(self._places(decode_assignment(synced.assignment)))
            classic.last_heard_ms = self.harness.now_ms

    @rule(classic=consumes(classics), gracefully=st.booleans())
    def classic_goes(self, classic: ClassicConsumer, gracefully: bool) -> None:
        self.alive.remove(classic)
        if gracefully and classic.member_id:
            self.harness.call(LeaveGroup(GROUP, (LeavingMember(classic.member_id),)))

    @rule(name=st.sampled_from(TOPICS), more=st.integers(1, 3))
    def grow_topic(self, name: str, more: int) -> None:
        former = self.harness.topics.topics.get(name)
        self.harness.set_topic(name, (len(former.partitions) if former else 0) + more)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.harness.delete_topic(name)
        self.committed = {place: offset for place, offset in self.committed.items() if place[0] != name}

    @rule(consumer=consumers, offset=st.integers(0, 1000))
    def commit(self, consumer: Consumer, offset: int) -> None:
        names = self.harness.topics.topics_by_id
        places = [(names[topic].name, p) for topic, p in sorted(consumer.owned) if topic in names]
        answer = self.harness.call(
            CommitOffsets(
                GROUP,
                consumer.member_id,
                consumer.epoch,
                tuple(OffsetToCommit(topic, p, offset) for topic, p in places),
                consumer.instance_id,
            )
        )
        if isinstance(answer, Committed):
            assert set(answer.errors) <= {ErrorCode.NONE}
            self.committed.update(dict.fromkeys(places, offset))

    @rule(duration_ms=st.sampled_from([1_000, 20_000, 50_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.harness.advance(duration_ms)
        # A client that was not heard for a session's length must know that its partitions are gone.
        for client in self.alive:
            if self.harness.now_ms - client.last_heard_ms >= SESSION_MS:
                client.owned.clear()
                if isinstance(client, Consumer):
                    client.assigned.clear()
                    client.full = True

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        if compacted:
            self.harness.compact()
        before = self._durable()
        self.harness.restart()
        assert self._durable() == before

    @invariant()
    def no_partition_has_two_consumers(self) -> None:
        owners: dict[Place, object] = {}
        for client in self.alive:
            for place in client.owned:
                assert owners.setdefault(place, client) is client, f"{place} is consumed twice"

    @invariant()
    def what_is_counted_is_what_a_count_finds(self) -> None:
        group = self.harness.machine.state.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            members = group.subscriptions.values()
            classic = [m.classic for m in members if m.classic is not None]
            assert group._readers == Counter(name for m in members for name in m.topic_names)
            assert group._supporters == Counter(name for each in classic for name, _ in each.protocols)
            assert group.named_count == sum(len(m.topic_names) for m in members)
            assert group.classic_count == len(classic)

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.harness.machine.state.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            assert group.epoch >= self.highest_epoch
            assert group.target_epoch <= group.epoch
            self.highest_epoch = group.epoch

    @invariant()
    def acknowledged_commits_are_there(self) -> None:
        fetched = self.harness.call(FetchOffsets(GROUP, None))
        assert isinstance(fetched, Fetched)
        found = {
            (topic, o.partition): o.committed.offset
            for topic, os in fetched.topics
            for o in os
            if o.committed
        }
        assert found == self.committed

    def teardown(self) -> None:
        """Left alone, clients that keep beating and giving back come to rest with everything assigned."""
        members = [client for client in self.alive if isinstance(client, Consumer)]
        if not members:
            return
        self.harness.advance(2 * SESSION_MS)
        for client in self.alive:
            client.lose_everything()
        for _ in range(4 * len(members) + 4):
            for member in members:
                self.heartbeat(member, answer_lost=False)
                self.give_back(member)
                self.heartbeat(member, answer_lost=False)
        self.no_partition_has_two_consumers()
        group = self.harness.machine.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        assert group.state.value == "Stable"
        wanted = {
            (topic.topic_id, p)
            for topic in self.harness.topics.topics.values()
            if any(topic.name in member.topics for member in members)
            for p in topic.partitions
        }
        assert {place for member in members for place in member.owned} == wanted

    def _told_to_join(self, classic: ClassicConsumer) -> bool:
        answer = self.harness.call(MemberHeartbeat(GROUP, classic.member_id, classic.generation))
        if isinstance(answer, KafkaError):
            classic.lose_everything()
            return True
        assert isinstance(answer, Alive)
        classic.last_heard_ms = self.harness.now_ms
        return answer.error is ErrorCode.REBALANCE_IN_PROGRESS

    def _start_as_classic_group(self, partitions: int, count: int) -> None:
        metadata = encode_subscription(Subscription(frozenset({"a"}), version=1))
        tokens = [
            self.harness.submit(
                JoinGroup(
                    GROUP,
                    "",
                    None,
                    f"old{n}",
                    "",
                    "consumer",
                    (("cooperative-sticky", metadata),),
                    SESSION_MS,
                    NEVER_MS,
                    False,
                )
            )
            for n in range(count)
        ]
        first = self.harness.answers.pop(tokens[0])
        assert isinstance(first, Joined)
        if count == 2:
            again = self.harness.submit(
                JoinGroup(
                    GROUP,
                    first.member_id,
                    None,
                    "old0",
                    "",
                    "consumer",
                    (("cooperative-sticky", metadata),),
                    SESSION_MS,
                    NEVER_MS,
                )
            )
            tokens = [again, tokens[1]]
        else:
            self.harness.answers[tokens[0]] = first
        joined = [self.harness.answers.pop(token) for token in tokens]
        members = [answer.member_id for answer in joined if isinstance(answer, Joined)]
        shares = {m: frozenset(range(n, partitions, count)) for n, m in enumerate(members)}
        assignments = tuple((m, encode_assignment({"a": ps}, 1)) for m, ps in shares.items())
        leader = joined[0]
        assert isinstance(leader, Joined)
        self.harness.call(SyncGroup(GROUP, members[0], leader.generation, assignments=assignments))
        topic_id = self.harness.topics.topics["a"].topic_id
        for member_id in members:
            classic = ClassicConsumer(member_id, frozenset({"a"}), member_id, leader.generation)
            classic.owned = {(topic_id, p) for p in shares[member_id]}
            classic.last_heard_ms = self.harness.now_ms
            self.alive.append(classic)

    def _names(self, owned: set[Place]) -> dict[str, frozenset[int]]:
        known = self.harness.topics.topics_by_id
        return {known[t].name: ps for t, ps in from_pairs(owned).items() if t in known}

    def _places(self, partitions: dict[str, frozenset[int]]) -> list[Place]:
        known = self.harness.topics.topics
        return [(known[name].topic_id, p) for name, ps in partitions.items() for p in ps]

    def _durable(self) -> object:
        group = self.harness.machine.state.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return None
        return (
            group.epoch,
            group.target_epoch,
            group.metadata_hash,
            group.subscriptions,
            group.currents,
            dict(group.targets),
            group.regexes,
            group._owners,
        )


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
