"""The quorum's rules, checked after every event of every replica."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.membership import ReplicaKey
from millstream.cluster.raft.replica import Replica
from millstream.testing.simulator.loop import SimulatedLoop
from millstream.testing.simulator.membership_watch import MembershipWatch
from millstream.testing.simulator.promise_watch import PromiseWatch

# Many times more than there are reasons for in a run: beyond it somebody changes something to and fro.
_MOST_ENTRIES = 1500


class QuorumWatch:
    """One leader a term; what is committed stays; after the same entry everybody has the same image.

    What replicas promise one by one is `PromiseWatch`'s, who has a vote `MembershipWatch`'s.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self._violated = loop.violated
        self.committed_index = 0
        self.voted: Callable[[int, int], None] = lambda _voter, _candidate: None
        """Called when a voter has promised its vote to another, who does not know of it yet."""
        self.leader_id: int | None = None
        self._votes: dict[Replica, tuple[int, ReplicaKey | None]] = {}
        self._newest_index = 0
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, Entry] = {}
        self._images: dict[int, MetadataImage] = {}
        self._checked: dict[Replica, tuple[int, int]] = {}
        self._stable: dict[Replica, int] = {}
        self._promises = PromiseWatch(loop.violated)
        self._memberships = MembershipWatch(loop.violated)
        self.newest = MetadataImage()
        self.image_came: Callable[[MetadataImage, MetadataImage], None] = lambda _old, _new: None
        """Called with the newest image known and the one after it, once for each."""
        self.entry_came: Callable[[Entry], None] = lambda _entry: None
        """Called with every entry that is committed, once, in their order."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """See every replica that lives meanwhile."""
        pump = Replica._pump

        def watched(replica: Replica) -> None:
            pump(replica)
            self._look(replica)

        setattr(Replica, "_pump", watched)  # noqa: B010 - a method in place of a method
        try:
            yield
        finally:
            setattr(Replica, "_pump", pump)  # noqa: B010

    def _look(self, replica: Replica) -> None:
        state = replica._raft.state
        if state.is_hard_state_durable and self._votes.get(replica) != (state.term, state.vote):
            self._votes[replica] = state.term, state.vote
            self._promises.wrote(state.key, state.term, state.vote)
            if state.vote is not None and state.vote != state.key:
                self.voted(state.key.node_id, state.vote.node_id)
        if state.leadership is not None:
            self.leader_id = state.key.node_id
            if state.term not in self._leaders:
                self._promises.leads(state)
            leader = self._leaders.setdefault(state.term, state.key.node_id)
            if leader != state.key.node_id:
                self._violated(
                    f"nodes {leader} and {state.key.node_id} both lead the quorum in term {state.term}"
                )
        log = state.log
        in_force = self._memberships.look(replica, log, max(self.committed_index, log.commit_index))
        if log.stable_index != self._stable.get(replica):
            self._stable[replica] = log.stable_index
            self._promises.has(state.key, log.stable_index)
        if log.commit_index > self.committed_index and log.commit_index >= log.first_index:
            self._promises.committed(state, log.entry(log.commit_index), in_force)
        committed, applied = self._checked.get(replica, (0, 0))
        if log.commit_index == committed and log.applied_index == applied:
            return
        if log.commit_index > committed:
            for entry in log.between(max(committed + 1, log.first_index), log.commit_index):
                self._check_entry(state.key.node_id, entry)
            self.committed_index = max(self.committed_index, log.commit_index)
        # In the middle of applying the image is not that of the index yet; the event around this one looks again.
        if log.applied_index > applied and not replica._is_pumping:
            applied = log.applied_index
            self._check_image(state.key.node_id, applied, replica._machine)
        self._checked[replica] = log.commit_index, applied

    def _check_entry(self, node_id: int, entry: Entry) -> None:
        known = self._committed.get(entry.index)
        if known is None:
            self._committed[entry.index] = entry
            self.entry_came(entry)
            if len(self._committed) > _MOST_ENTRIES:
                self._violated(f"the metadata change without an end; entry {entry.index} is {entry}")
        elif known is not entry and known != entry:
            self._violated(f"node {node_id} holds {entry} as committed, where {known} was committed before")

    def _check_image(self, node_id: int, index: int, machine: Any) -> None:
        image: MetadataImage = machine.image
        known = self._images.setdefault(index, image)
        if known is image and index > self._newest_index:
            before, self.newest, self._newest_index = self.newest, image, index
            self.image_came(before, image)
        if known is not image and known != image:
            self._violated(f"after entry {index} node {node_id} has another image than others had")
