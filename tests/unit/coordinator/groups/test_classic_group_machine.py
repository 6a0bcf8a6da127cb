"""Classic groups under random clients: fencing holds, generations grow, acknowledged commits survive restarts."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from millstream.coordinator.groups.classic_group import ClassicGroup, Phase
from millstream.coordinator.groups.consumer_protocol import (
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from millstream.coordinator.groups.records import StoredClassicGroup
from millstream.coordinator.groups.replies import Alive, Committed, Fetched, Joined, Synced
from millstream.coordinator.groups.requests import (
    CommitOffsets,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberHeartbeat,
    OffsetToCommit,
    SyncGroup,
)
from millstream.protocol.errors import ErrorCode, KafkaError
from scenario.harness import Answer, Harness

GROUP = "g"
PARTITIONS = 5
METADATA = encode_subscription(Subscription(frozenset({"t"}), version=1))


@dataclass(eq=False)
class Client:
    name: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    assigned: frozenset[int] | None = None
    joined: Joined | None = None
    token: int | None = None
    # Only a generation that had an assignment counts: an unfinished round's number comes again after a restart.
    synced_generation: int = 0

    def lose_everything(self, *, member_id: str = "") -> None:
        self.member_id, self.generation, self.assigned, self.joined = member_id, -1, None, None


class ClassicGroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        self.harness.set_topic("t", PARTITIONS)
        self.alive: list[Client] = []
        self.waiting: dict[int, Client] = {}
        self.committed: dict[int, int] = {}
        self.stable_generation = 0
        self.stable_assignments: list[bytes] = []
        self.scanned = 0
        self.born = 0

    @rule(target=clients, static=st.booleans())
    def new_client(self, static: bool) -> Client:
        self.born += 1
        client = Client(f"c{self.born}", f"i{self.born % 3}" if static else None)
        self.alive.append(client)
        return client

    @rule(client=clients, old=st.booleans(), protocols=st.sampled_from([("range",), ("range", "sticky")]))
    def join(self, client: Client, old: bool, protocols: tuple[str, ...]) -> None:
        if client.token is None:
            self._send(
                client,
                JoinGroup(
                    GROUP,
                    client.member_id,
                    client.instance_id,
                    client.name,
                    "",
                    "consumer",
                    tuple((name, METADATA) for name in protocols),
                    10_000,
                    30_000,
                    requires_known_member_id=not old,
                    supports_skip_assignment=not old,
                ),
            )

    @rule(client=clients)
    def sync(self, client: Client) -> None:
        joined = client.joined
        if client.token is not None or joined is None:
            return
        assignments: tuple[tuple[str, bytes], ...] = ()
        if joined.leader == client.member_id and not joined.skip_assignment:
            count = len(joined.members)
            assignments = tuple(
                (m.member_id, encode_assignment({"t": frozenset(range(n, PARTITIONS, count))}, 1))
                for n, m in enumerate(joined.members)
            )
        self._send(
            client,
            SyncGroup(
                GROUP, client.member_id, client.generation, client.instance_id, None, None, assignments
            ),
        )

    @rule(client=clients)
    def heartbeat(self, client: Client) -> None:
        if client.token is None and client.generation >= 0:
            answer = self.harness.call(
                MemberHeartbeat(GROUP, client.member_id, client.generation, client.instance_id)
            )
            assert not isinstance(answer, Alive) or client.generation == self._group().generation
            if isinstance(answer, KafkaError):
                client.lose_everything()
            elif answer == Alive(ErrorCode.REBALANCE_IN_PROGRESS):
                self.join(client, old=False, protocols=("range",))

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        if client.token is None and client.member_id:
            self._deliver_after(LeaveGroup(GROUP, (LeavingMember(client.member_id, client.instance_id),)))
            client.lose_everything()

    @rule(client=consumes(clients))
    def crash(self, client: Client) -> None:
        self.alive.remove(client)
        if client.token is not None:
            del self.waiting[client.token]

    @rule(client=clients, offset=st.integers(0, 1000))
    def commit(self, client: Client, offset: int) -> None:
        if client.assigned is None or client.token is not None:
            return
        offsets = tuple(OffsetToCommit("t", p, offset) for p in sorted(client.assigned))
        answer = self.harness.call(
            CommitOffsets(GROUP, client.member_id, client.generation, offsets, client.instance_id)
        )
        if isinstance(answer, Committed):
            group = self._group()
            assert client.generation == group.generation, "a fenced client committed"
            stored = decode_assignment(group.members[client.member_id].assignment).get("t", frozenset())
            if group.phase is Phase.STABLE:
                assert client.assigned == stored, "someone else's partitions were committed"
            self.committed.update(dict.fromkeys(client.assigned, offset))
        else:
            assert isinstance(answer, KafkaError)
            if answer.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                client.lose_everything()

    @rule(client=clients, by=st.sampled_from([-2, -1, 1]), kind=st.sampled_from(["beat", "commit", "sync"]))
    def a_request_of_another_generation_arrives(self, client: Client, by: int, kind: str) -> None:
        """Sent long ago and held up on the way, or made up: the member is right, its generation is not."""
        generation = client.generation + by
        group = self.harness.machine.state.groups.get(GROUP)
        if not client.member_id or generation < 0 or (group and generation == self._group().generation):
            return
        request: MemberHeartbeat | CommitOffsets | SyncGroup = MemberHeartbeat(
            GROUP, client.member_id, generation, client.instance_id
        )
        if kind == "commit":
            offsets = (OffsetToCommit("t", 0, 4711),)
            request = CommitOffsets(GROUP, client.member_id, generation, offsets, client.instance_id)
        elif kind == "sync":
            request = SyncGroup(GROUP, client.member_id, generation, client.instance_id)
        answer = self.harness.call(request)
        assert isinstance(answer, KafkaError), "another generation was accepted"
        assert answer.code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )

    @rule(rounds=st.integers(1, 4), lazy=st.sets(st.integers(0, 5)))
    def clients_go_on(self, rounds: int, lazy: set[int]) -> None:
        """Most clients do what the protocol wants of them next."""
        for _ in range(rounds):
            for number, client in enumerate(self.alive):
                if number in lazy:
                    continue
                if client.joined is not None:
                    self.sync(client)
                elif client.assigned is None:
                    self.join(client, old=False, protocols=("range",))
                else:
                    self.heartbeat(client)
            self.time_passes(3_000)

    @rule(duration_ms=st.sampled_from([100, 3_000, 9_000, 31_000]))
    def time_passes(self, duration_ms: int) -> None:
        self.harness.advance(duration_ms)
        self._deliver()

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        if compacted:
            self.harness.compact()
            self.scanned = len(self.harness.log)
        self.harness.restart()
        for client in self.waiting.values():
            client.token = None
            client.joined = None
        self.waiting.clear()

    @invariant()
    def stored_generations_grow(self) -> None:
        """A generation stands for one assignment; only the id of a static member may change in it."""
        for key, value in self.harness.log[self.scanned :]:
            record = self.harness.machine.decode(key, value)
            if record and isinstance(record.value, StoredClassicGroup):
                assignments = sorted(member.assignment for member in record.value.members)
                if record.value.generation == self.stable_generation:
                    assert assignments == self.stable_assignments
                assert record.value.generation >= self.stable_generation
                self.stable_generation = record.value.generation
                self.stable_assignments = assignments
        self.scanned = len(self.harness.log)

    @invariant()
    def each_partition_has_one_member(self) -> None:
        group = self.harness.machine.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.phase is Phase.STABLE:
            taken = [p for m in group.members.values() for p in decode_assignment(m.assignment).get("t", ())]
            assert len(taken) == len(set(taken))
            assert group.leader in group.members
            assert set(group.instances.values()) <= group.members.keys()

    @invariant()
    def what_is_counted_is_what_a_count_finds(self) -> None:
        group = self.harness.machine.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            members = group.members.values()
            assert group._supporters == Counter(name for m in members for name in dict(m.protocols))
            assert group.size_bytes == sum(len(data) for m in members for _, data in m.protocols)

    @invariant()
    def acknowledged_commits_are_there(self) -> None:
        fetched = self.harness.call(FetchOffsets(GROUP, None))
        assert isinstance(fetched, Fetched)
        found = {
            o.partition: o.committed.offset for _, offsets in fetched.topics for o in offsets if o.committed
        }
        assert found == self.committed

    def teardown(self) -> None:
        """Nobody waits for ever: every request that the coordinator kept has its answer in time."""
        self.harness.advance(1_000_000)
        self._deliver()
        assert not self.waiting
        group = self.harness.machine.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            assert group.phase is Phase.EMPTY

    def _group(self) -> ClassicGroup:
        group = self.harness.machine.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def _send(self, client: Client, request: JoinGroup | SyncGroup) -> None:
        token = self.harness.submit(request)
        client.token = token
        self.waiting[token] = client
        self._deliver()

    def _deliver_after(self, request: LeaveGroup) -> None:
        self.harness.answers.pop(self.harness.submit(request))
        self._deliver()

    def _deliver(self) -> None:
        for token, answer in list(self.harness.answers.items()):
            del self.harness.answers[token]
            client = self.waiting.pop(token, None)
            if client is not None:
                client.token = None
                self._hear(client, answer)

    def _hear(self, client: Client, answer: Answer) -> None:
        if isinstance(answer, Joined):
            client.member_id = answer.member_id
            if answer.error is ErrorCode.NONE:
                assert answer.generation >= client.synced_generation
                client.generation, client.joined, client.assigned = answer.generation, answer, None
        elif isinstance(answer, Synced):
            client.assigned = decode_assignment(answer.assignment).get("t", frozenset())
            client.joined = None
            client.synced_generation = client.generation
        else:
            assert isinstance(answer, KafkaError)
            rejoins = answer.code is ErrorCode.REBALANCE_IN_PROGRESS
            client.lose_everything(member_id=client.member_id if rejoins else "")


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
