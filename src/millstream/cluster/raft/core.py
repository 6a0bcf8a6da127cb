"""The core's interface: events in, a `Ready` of effects out. No sockets, no files, no clock, no randomness."""

from uuid import UUID

from millstream.cluster.raft import changes, election, following, reading, replication
from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, Snapshot
from millstream.cluster.raft.errors import TooMuchUncommitted
from millstream.cluster.raft.membership import Change, MemberKey
from millstream.cluster.raft.messages import (
    AppendRejected,
    AppendReply,
    AppendRequest,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    Message,
    PreVoteReply,
    PreVoteRequest,
    ReadReply,
    ReadRequest,
    Ready,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from millstream.cluster.raft.progress import Pace
from millstream.cluster.raft.reading import send_heartbeats
from millstream.cluster.raft.state import Jitter, RaftSettings, RaftState, Role
from millstream.cluster.raft.status import Status, status_of
from millstream.runtime.invariant import invariant


class Raft:
    """One member. After any call, call `ready()` until it returns None.

    raft = Raft(key, RaftSettings(), Random(7).randrange, restored)
    raft.step(message)
    while (ready := raft.ready()) is not None:
        ...
    """

    __slots__ = ("_state",)

    def __init__(self, key: MemberKey, settings: RaftSettings, jitter: Jitter, restored: Restored) -> None:
        self._state = RaftState(key, settings, jitter, restored)

    @property
    def state(self) -> RaftState:
        """The core's state, read-only."""
        return self._state

    def status(self) -> Status:
        return status_of(self._state)

    # Events

    def tick(self) -> None:
        raft = self._state
        raft.elapsed += 1
        if raft.leadership is None:
            if raft.elapsed >= raft.timeout:
                election.on_election_timeout(raft)
            return
        if raft.elapsed >= raft.settings.election_ticks:
            raft.elapsed = 0
            if not election.check_quorum(raft):
                return
        changes.tick_transfer(raft)
        replication.retry_snapshots(raft)
        raft.leading.heartbeat_elapsed += 1
        if raft.leading.heartbeat_elapsed >= raft.settings.heartbeat_ticks:
            send_heartbeats(raft)

    def campaign(self) -> None:
        """Stand for election now instead of at the next timeout; so a single node starts without waiting."""
        if self._state.role is not Role.LEADER:
            election.on_election_timeout(self._state)

    def resign(self) -> None:
        """Step down, because this node cannot do a leader's work."""
        if self._state.role is Role.LEADER:
            self._state.become_follower(self._state.term, None)

    def take_back_unwritten(self) -> bool:
        """After a failed write of the last Ready, an only member drops the unwritten entries and keeps leading.

        False if others may have seen them because they change the membership, or if this member does not lead yet.
        """
        raft = self._state
        leading, log = raft.leadership, raft.log
        if leading is None or log.membership.members != (raft.key,):
            return False
        if log.stable_index < max(leading.first_index, log.membership_index):
            return False
        log.forget_unwritten()
        leading.uncommitted_bytes = 0
        raft.writing = None
        return True

    def step(self, message: Message) -> None:
        """Handle a message; one for another member, such as an earlier directory of this node, is dropped."""
        raft = self._state
        if message.to != raft.key or not self._settle_term(message):
            return
        match message:
            case AppendRequest() | Heartbeat() | InstallSnapshot():
                following.on_message_from_leader(raft, message)
            case PreVoteRequest():
                election.on_pre_vote_request(raft, message)
            case VoteRequest():
                election.on_vote_request(raft, message)
            case PreVoteReply():
                election.on_pre_vote_reply(raft, message)
            case VoteReply():
                election.on_vote_reply(raft, message)
            case TimeoutNow():
                election.on_timeout_now(raft, message)
            case ReadRequest():
                reading.on_read_request(raft, message)
            case ReadReply():
                reading.on_read_reply(raft, message)
            case _:
                self._step_reply_to_leader(message)

    def _step_reply_to_leader(self, message: AppendReply | AppendRejected | HeartbeatReply) -> None:
        raft = self._state
        if raft.leadership is None:
            return
        match message:
            case AppendReply():
                replication.on_append_reply(raft, message)
            case AppendRejected():
                replication.on_append_rejected(raft, message)
            case HeartbeatReply():
                replication.on_heartbeat_reply(raft, message)

    def _settle_term(self, message: Message) -> bool:
        """Adopt a later term, reject an earlier one; whether the message should be handled."""
        raft = self._state
        if message.term > raft.term:
            match message:
                case PreVoteRequest():
                    return not raft.hears_leader
                case VoteRequest() if raft.hears_leader and not message.transfer:
                    return False
                case PreVoteReply() if message.granted:
                    return True
                case AppendRequest() | Heartbeat() | InstallSnapshot():
                    raft.become_follower(message.term, message.sender)
                case _:
                    raft.become_follower(message.term, None)
        elif message.term < raft.term:
            match message:
                case AppendRequest() | Heartbeat() | InstallSnapshot():
                    following.on_stale_leader(raft, message)
                case PreVoteRequest():
                    raft.send(PreVoteReply(raft.key, message.sender, raft.term, granted=False))
            return False
        return True

    def propose(self, data: bytes) -> Entry:
        """Append at the leader; the entry's index and term tell later whether it was committed."""
        raft = self._state
        leading = changes.leadership_for_proposals(raft)
        if leading.uncommitted_bytes and (
            leading.uncommitted_bytes + len(data) > raft.settings.max_uncommitted_bytes
        ):
            raise TooMuchUncommitted(
                f"{leading.uncommitted_bytes} bytes wait to be committed; try again later"
            )
        return replication.append(raft, EntryKind.DATA, data)

    def propose_change(self, change: Change) -> Entry:
        """Append a new membership, which takes effect at once; ChangeRefused when none can be made now."""
        return changes.propose_change(self._state, change)

    def transfer_leadership(self, to: MemberKey) -> None:
        changes.transfer_leadership(self._state, to)

    def read_index(self, token: UUID) -> None:
        """Ask for a ReadState; `token` must never have been used before, not even before a restart."""
        reading.read_index(self._state, token)

    def report_snapshot_failed(self, to: MemberKey) -> None:
        """The transport could not deliver a snapshot; send it again after the next message from this member."""
        leadership = self._state.leadership
        progress = leadership.progress.get(to) if leadership is not None else None
        if progress is not None and progress.pace is Pace.SNAPSHOT:
            progress.probe()
            progress.is_paused = True

    def report_gone(self, member: MemberKey) -> None:
        """The member's process has ended: if it led, an election need not wait for the timeout."""
        election.on_gone(self._state, member)

    def compact(self, snapshot: Snapshot) -> None:
        """A snapshot of this member's own state machine is durable: drop entries that it covers."""
        self._state.log.compact(snapshot, self._state.settings.trailing_entries)

    # Effects

    def ready(self) -> Ready | None:
        """The next effects, each returned once; None if there are none."""
        raft = self._state
        if raft.has_nothing_to_do:
            return None
        hard_state: HardState | None = None
        snapshot: Snapshot | None = None
        entries: tuple[Entry, ...] = ()
        if raft.writing is None:
            hard_state = None if raft.is_hard_state_durable else raft.hard_state
            snapshot, entries = raft.log.take_unstable()
        must_persist = hard_state is not None or snapshot is not None or bool(entries)
        if must_persist:
            raft.writing = raft.hard_state
        messages, after = _split_messages(raft, must_persist=must_persist)
        committed = raft.log.take_committed(raft.settings.max_apply_bytes)
        read_states, aborted = tuple(raft.read_states), tuple(raft.aborted_reads)
        if not (must_persist or messages or committed or read_states or aborted):
            return None
        raft.read_states.clear()
        raft.aborted_reads.clear()
        return Ready(hard_state, snapshot, entries, messages, after, committed, read_states, aborted)

    def advance(self) -> None:
        """The last Ready with `must_persist` is on disk."""
        raft = self._state
        invariant(raft.writing is not None, "nothing was being written")
        assert raft.writing is not None
        raft.durable, raft.writing = raft.writing, None
        raft.log.written()
        if raft.is_hard_state_durable:
            election.on_own_vote_durable(raft)
        if raft.leadership is not None and replication.commit_what_majority_has(raft):
            replication.broadcast(raft)


def _split_messages(
    raft: RaftState, *, must_persist: bool
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Messages that may be sent at once, and those that wait until this Ready is on disk."""
    now: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()
    # Every message carries the sender's term, so none is sent before term and vote are durable.
    if raft.is_hard_state_durable:
        now = tuple(raft.outbox)
        raft.outbox.clear()
    if must_persist:
        after = (*raft.outbox, *raft.held)
        raft.outbox.clear()
        raft.held.clear()
    elif raft.writing is None:
        now += tuple(raft.held)
        raft.held.clear()
    return now, after
