"""A member's state and settings; time is counted in ticks. The rules that change it are in files by subject."""

from collections.abc import Callable
from enum import Enum
from uuid import UUID

import msgspec

from millstream.cluster.raft.entries import HardState, Restored
from millstream.cluster.raft.log import RaftLog
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import PROMISES, Message, ReadState
from millstream.cluster.raft.progress import Progress
from millstream.runtime.invariant import InvariantViolation, invariant

TICK_MS = 25


class RaftSettings(msgspec.Struct, frozen=True):
    """The defaults are for ticks of 25 ms: a heartbeat every 50 ms, an election after 300 to 600 ms of silence."""

    heartbeat_ticks: int = 2
    election_ticks: int = 12
    """A voter that heard its leader within this time refuses to vote; a timeout is drawn from once to twice it."""
    snapshot_retry_ticks: int = 400
    """A snapshot whose arrival was not reported is sent again after this time."""
    write_retry_ticks: int = 40
    """A write that a full disk refused is tried again after this time."""
    max_append_bytes: int = 1 << 20
    max_inflight_bytes: int = 8 << 20
    """Bytes sent to one follower and not acknowledged."""
    max_inflight_messages: int = 128
    max_uncommitted_bytes: int = 16 << 20
    """Bytes proposed and not committed; one proposal is always accepted."""
    max_apply_bytes: int = 1 << 16
    """Bytes to apply in one Ready, and on a node in one turn of its loop."""
    trailing_entries: int = 1000
    """Entries kept in memory although a snapshot covers them, for followers that are slightly behind."""


Jitter = Callable[[int], int]
"""A number from 0 up to, not including, the argument; the only randomness of the core."""


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class PendingRead(msgspec.Struct, frozen=True):
    token: UUID
    requester: MemberKey | None
    """The follower that asked; None for a read of this member's own."""


class Leadership(msgspec.Struct):
    """A leader's extra state."""

    first_index: int
    """The no-op that began the term; the commit index is uncertain until it is committed."""
    progress: dict[MemberKey, Progress] = msgspec.field(default_factory=dict)
    """For all members except the leader itself."""
    uncommitted_bytes: int = 0
    heartbeat_elapsed: int = 0
    transfer_to: MemberKey | None = None
    transfer_elapsed: int = 0
    read_round: int = 0
    reads_waiting: list[PendingRead] = msgspec.field(default_factory=list)
    reads_asking: list[PendingRead] = msgspec.field(default_factory=list)
    """Served when a majority has answered the heartbeats of `read_round`."""
    reads_index: int = 0


class RaftState:
    __slots__ = (
        "_jitter",
        "aborted_reads",
        "agreed_index",
        "durable",
        "elapsed",
        "held",
        "key",
        "leader",
        "leadership",
        "log",
        "outbox",
        "read_states",
        "role",
        "settings",
        "term",
        "timeout",
        "vote",
        "votes",
        "writing",
    )

    def __init__(self, key: MemberKey, settings: RaftSettings, jitter: Jitter, restored: Restored) -> None:
        self.key = key
        self.settings = settings
        self._jitter = jitter
        self.log = RaftLog(restored.snapshot, restored.entries)
        self.durable = restored.hard_state
        self.term, self.vote = restored.hard_state.term, restored.hard_state.vote
        # A new member that starts from a snapshot has voted in no term at all.
        if self.term < self.log.last_term:
            self.term, self.vote = self.log.last_term, None
        self.role = Role.FOLLOWER
        self.leader: MemberKey | None = None
        self.leadership: Leadership | None = None
        self.votes: dict[MemberKey, bool] = {}
        self.agreed_index = 0
        """On a follower: the index up to which its log is known to match this leader's."""
        self.elapsed = 0
        self.timeout = 0
        self.reset_timer()
        self.outbox: list[Message] = []
        self.held: list[Message] = []
        """Messages that wait until the state that they promise is on disk."""
        self.writing: HardState | None = None
        """Set while a Ready is being written."""
        self.read_states: list[ReadState] = []
        self.aborted_reads: list[UUID] = []

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote)

    @property
    def is_hard_state_durable(self) -> bool:
        return self.term == self.durable.term and self.vote == self.durable.vote

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether there is nothing to send, write, apply or answer, which is usual."""
        return (
            not self.outbox
            and not self.held
            and not self.read_states
            and not self.aborted_reads
            and self.log.has_nothing_to_do
            and self.is_hard_state_durable
        )

    @property
    def is_voter(self) -> bool:
        return self.key in self.log.membership.voters

    @property
    def leading(self) -> Leadership:
        leadership = self.leadership
        if leadership is None:
            raise InvariantViolation(f"node {self.key.node_id} does not lead")
        return leadership

    @property
    def hears_leader(self) -> bool:
        return self.leader is not None and self.elapsed < self.settings.election_ticks

    def reset_timer(self) -> None:
        self.elapsed = 0
        self.timeout = self.settings.election_ticks + self._jitter(self.settings.election_ticks)

    def hurry(self) -> None:
        """Stand for election soon, at a random time so that members do not collide."""
        self.elapsed = 0
        self.timeout = 1 + self._jitter(2 * self.settings.heartbeat_ticks)

    def send(self, message: Message) -> None:
        (self.held if isinstance(message, PROMISES) else self.outbox).append(message)

    def enter_term(self, term: int) -> None:
        invariant(term >= self.term, f"term {term} after {self.term}")
        if term > self.term:
            self.term, self.vote = term, None

    def become_follower(self, term: int, leader: MemberKey | None) -> None:
        self.enter_term(term)
        self._leave_role(Role.FOLLOWER)
        self.leader = leader

    def become_pre_candidate(self) -> None:
        """Term and vote stay: a pre-vote binds no one."""
        self._leave_role(Role.PRE_CANDIDATE)

    def become_candidate(self) -> None:
        self.enter_term(self.term + 1)
        self._leave_role(Role.CANDIDATE)
        self.vote = self.key

    def become_leader(self, leadership: Leadership) -> None:
        invariant(self.role is Role.CANDIDATE, f"{self.role.value} cannot lead")
        self._leave_role(Role.LEADER)
        self.leader = self.key
        self.leadership = leadership

    def _leave_role(self, role: Role) -> None:
        if self.leadership is not None:
            reads = self.leadership.reads_waiting + self.leadership.reads_asking
            self.aborted_reads += [read.token for read in reads if read.requester is None]
        self.leadership = None
        self.votes = {}
        self.agreed_index = 0
        self.leader = None
        self.role = role
        self.reset_timer()
