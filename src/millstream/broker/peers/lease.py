"""The lease: until when no other node can have acknowledged anything that this one does not know.

A node that is cut off would answer with old data: a group's old positions, an old end of a log. So a leader answers
such questions only while it has a lease. A lease counts from when the node SENT the heartbeat that a controller
accepted, and is shorter than the session after which a controller fences the node. The proof is in
docs/decisions/replication.md.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from millstream.broker.partitions.registry import CutOff, Partitions
from millstream.config.checks import LEASE_SHARE


class _Term(msgspec.Struct, frozen=True):
    """Ends at `until`; counts once this node has applied the metadata up to `index`."""

    until: float
    index: int


_NONE = _Term(float("-inf"), 0)


class Lease:
    """Times are seconds of `now`, a clock that also runs while the machine is suspended."""

    __slots__ = ("_applied_index", "_current", "_is_only_voter", "_now", "_pending", "_seconds")

    def __init__(
        self,
        session_seconds: float,
        now: Callable[[], float],
        applied_index: Callable[[], int],
        is_only_voter: Callable[[], bool],
    ) -> None:
        self._seconds = session_seconds * LEASE_SHARE
        self._now = now
        self._applied_index = applied_index
        self._is_only_voter = is_only_voter
        self._current = _NONE
        self._pending: deque[_Term] = deque()
        """Terms whose metadata are not applied here yet. Several: where much changes, a node may always be behind."""

    @property
    def seconds(self) -> float:
        return self._seconds

    @property
    def is_valid(self) -> bool:
        """Check it for every answer: after a pause of the process, nothing else shows that time has passed."""
        current = self._settle()
        if self._now() < current.until and self._applied_index() >= current.index:
            return True
        # No other node can be elected, and this node knows its own decisions.
        return self._is_only_voter()

    def renew(self, sent_at: float, index: int) -> None:
        """An active controller accepted the heartbeat sent at `sent_at`, when `index` was committed.

        The previous term counts until this node has applied `index`.
        """
        self._settle()
        self._pending.append(_Term(sent_at + self._seconds, index))

    def prolong(self, at: float) -> None:
        """No controller could have fenced this node at that time. A lease that has ended is not revived."""
        current = self._settle()
        if self.is_valid and at + self._seconds > current.until:
            self._current = _Term(at + self._seconds, current.index)

    def give_up(self) -> None:
        """Call it before this node sends the controller anything that lets another node lead."""
        self._current = _NONE
        self._pending.clear()

    def _settle(self) -> _Term:
        pending = self._pending
        while pending and (self._applied_index() >= pending[0].index or self._now() >= pending[0].until):
            following = pending.popleft()
            if following.until > self._current.until:
                self._current = following
        return self._current


class Isolation:
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self.on_cut_off: list[Callable[[], None]] = []
        """Called when the node is cut off, for whatever reason."""
        self.on_changed: list[Callable[[], None]] = []
        """Called when the node is cut off or is back."""

    def is_cut_off_by(self, why: CutOff) -> bool:
        return self._partitions.is_cut_off_by(why)

    def lease_until(self, has_lease: Callable[[], bool]) -> None:
        """`has_lease` is False when another node may have acknowledged something that this node does not know."""
        self._partitions.has_lease = has_lease

    def cut_off(self, why: CutOff) -> None:
        """Stop leading for clients, and notify the listeners."""
        if self._partitions.is_cut_off_by(why):
            return
        self._partitions.cut_off(why)
        for notify in (*self.on_cut_off, *self.on_changed):
            notify()

    def rejoin(self, why: CutOff) -> None:
        """Lead for clients again; call it when this node has the newest metadata."""
        self._partitions.rejoin(why)
        for notify in self.on_changed:
            notify()
