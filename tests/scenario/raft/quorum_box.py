"""A few members in a box: messages lie on the wire until they are delivered, disks write when they are told to."""

from dataclasses import dataclass, field
from uuid import UUID

from msgspec.structs import replace

from millstream.cluster.raft.core import Raft
from millstream.cluster.raft.entries import Entry, EntryKind, HardState, Restored, Snapshot, first_snapshot
from millstream.cluster.raft.membership import MemberKey, Membership
from millstream.cluster.raft.messages import Message, Ready
from millstream.cluster.raft.state import RaftSettings


def key_of(node_id: int) -> MemberKey:
    return MemberKey(node_id, UUID(int=node_id))


@dataclass
class Disk:
    """What survives a restart."""

    state: Restored
    is_slow: bool = False
    waiting: Ready | None = None

    def store(self, ready: Ready, hard_state: HardState) -> None:
        snapshot, entries = self.state.snapshot, self.state.entries
        if ready.snapshot is not None:
            snapshot, entries = ready.snapshot, ()
        if ready.entries:
            entries = (*[e for e in entries if e.index < ready.entries[0].index], *ready.entries)
        self.state = Restored(hard_state, snapshot, entries)


@dataclass
class BoxNode:
    raft: Raft
    disk: Disk
    machine: list[str] = field(default_factory=list)

    @property
    def node_id(self) -> int:
        return self.raft.state.key.node_id


class QuorumBox:
    def __init__(self) -> None:
        self.settings = RaftSettings(heartbeat_ticks=1, election_ticks=5, trailing_entries=0)
        self.nodes: dict[int, BoxNode] = {}
        self.wire: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.news: list[str] = []

    def add(
        self, node_id: int, voters: tuple[int, ...], terms: tuple[int, ...] = (1,), term: int = 0
    ) -> None:
        """A node whose log has entries of `terms`; without voters it has nothing and waits to be told."""
        state = Restored()
        if voters:
            membership = Membership(tuple(map(key_of, voters)))
            entries = [
                Entry(index, each, EntryKind.DATA, f"{each}.{index}".encode())
                for index, each in enumerate(terms[1:], 2)
            ]
            hard_state = HardState(max(term, terms[-1]))
            state = Restored(hard_state, first_snapshot(membership), tuple(entries))
        self.nodes[node_id] = self._start(node_id, Disk(state))

    def restart(self, node_id: int) -> None:
        disk = self.nodes[node_id].disk
        self.nodes[node_id] = self._start(node_id, Disk(disk.state))

    def _start(self, node_id: int, disk: Disk) -> BoxNode:
        raft = Raft(key_of(node_id), self.settings, lambda limit: node_id % limit, disk.state)
        machine = [word for word in disk.state.snapshot.data.decode().split() if word]
        return BoxNode(raft, disk, machine)

    def settle(self) -> None:
        """Carry out everything that the cores ask for, but deliver nothing."""
        for node in self.nodes.values():
            while (ready := node.raft.ready()) is not None:
                self._carry_out(node, ready)

    def _carry_out(self, node: BoxNode, ready: Ready) -> None:
        self.wire += ready.messages
        for entry in ready.committed:
            if entry.kind is EntryKind.DATA:
                node.machine.append(entry.data.decode())
        if ready.committed:
            first, last = ready.committed[0].index, ready.committed[-1].index
            place = f"{first}" if first == last else f"{first} to {last}"
            self.news.append(f"{node.node_id} applies {place}: {' '.join(map(describe, ready.committed))}")
        for read in ready.read_states:
            self.news.append(f"{node.node_id} may read {read.token.int} at {read.index}")
        self.news += [f"{node.node_id} gives up read {token.int}" for token in ready.aborted_reads]
        if ready.must_persist:
            node.disk.waiting = ready
            if not node.disk.is_slow:
                self.sync(node)

    def sync(self, node: BoxNode) -> None:
        ready, hard_state = node.disk.waiting, node.raft.state.writing
        if ready is None or hard_state is None:
            return
        node.disk.waiting = None
        node.disk.store(ready, hard_state)
        if ready.snapshot is not None:
            node.machine = ready.snapshot.data.decode().split()
            self.news.append(f"{node.node_id} restores a snapshot at {ready.snapshot.index}")
        node.raft.advance()
        self.wire += ready.messages_after_persist

    def snapshot(self, node: BoxNode) -> Snapshot:
        log = node.raft.state.log
        index = log.applied_index
        snapshot = Snapshot(
            index, log.term_at(index) or 0, log.membership_at(index), " ".join(node.machine).encode()
        )
        entries = tuple(entry for entry in node.disk.state.entries if entry.index > index)
        node.disk.state = replace(node.disk.state, snapshot=snapshot, entries=entries)
        node.raft.compact(snapshot)
        return snapshot

    def take_message(self, paths: set[tuple[int, int]] | None) -> Message | None:
        """The first message on the wire, or the first on one of the `paths`."""
        self.settle()
        place = next((i for i, m in enumerate(self.wire) if paths is None or path_of(m) in paths), None)
        return self.wire.pop(place) if place is not None else None

    def arrives(self, message: Message) -> bool:
        return path_of(message) not in self.cuts and message.to.node_id in self.nodes

    def hand_over(self, message: Message) -> None:
        self.nodes[message.to.node_id].raft.step(message)
        self.settle()


def path_of(message: Message) -> tuple[int, int]:
    return message.sender.node_id, message.to.node_id


def describe(entry: Entry) -> str:
    return entry.data.decode() if entry.kind is EntryKind.DATA else entry.kind.name.lower()
