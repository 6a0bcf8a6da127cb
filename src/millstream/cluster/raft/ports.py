"""What a member needs from the rest of the node."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Message


class Transport(Protocol):
    """Sends messages to other members. May lose, repeat, delay and reorder them; must not block or call back.

    A transport that detects a lost snapshot calls `Member.report_snapshot_failed`; one that detects the end of another
    member's process calls `Member.report_gone`.
    """

    def send(self, message: Message) -> None: ...


class StateMachine(Protocol):
    """Applies committed entries. Called on the event loop, in log order; the same entries must give the same state.

    class Counter:
        def __init__(self) -> None:
            self.total = 0

        def apply(self, entries):
            return [self._add(entry) for entry in entries]

        def restore(self, data):
            self.total = int(data or b"0")

        def snapshot(self):
            total = self.total
            return lambda: str(total).encode()
    """

    def apply(self, entries: Sequence[Entry]) -> Sequence[Any]:
        """One result for each entry, given to its proposer. Only entries of kind DATA are passed."""
        ...

    def restore(self, data: bytes) -> None:
        """Replace the whole state by this snapshot."""
        ...

    def snapshot(self) -> Callable[[], bytes]:
        """Capture the current state; the returned function encodes it, in another thread."""
        ...


class Threads(Protocol):
    """Runs blocking work; implemented by `runtime.workers.Workers`."""

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...


class Listener(Protocol):
    """Notified on the event loop, after the state machine has applied the entries behind the change."""

    def on_leadership(self, term: int, leader: MemberKey | None, *, is_mine: bool) -> None:
        """`is_mine` when this member leads and has applied everything that earlier leaders committed."""
        ...

    def on_write_refused(self) -> None:
        """A log write failed, for example because the disk is full; it is retried."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """The member has stopped: its disk or its state machine can no longer be trusted."""
        ...
