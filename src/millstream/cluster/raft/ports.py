"""What a member needs from the rest of the node."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from millstream.cluster.raft.entries import Entry
from millstream.cluster.raft.membership import MemberKey
from millstream.cluster.raft.messages import Message


class Transport(Protocol):
    """The way to the other members. May lose, repeat, delay and reorder; must not block or call back.

    One that knows that a snapshot did not arrive says so with `Member.report_snapshot_failed`, and one that knows
    that another member's process has ended with `Member.report_gone`.
    """

    def send(self, message: Message) -> None: ...


class StateMachine(Protocol):
    """What the log is for. Called on the event loop, in the order of the log; the same entries give the same state.

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
        """One result for each entry, given to its proposer. Only entries of kind DATA come here."""
        ...

    def restore(self, data: bytes) -> None:
        """Take the place of everything applied so far."""
        ...

    def snapshot(self) -> Callable[[], bytes]:
        """Note the state as it is now; the function that is returned encodes it, in another thread."""
        ...


class Threads(Protocol):
    """Where blocking work goes; `runtime.workers.Workers` is one."""

    def submit(self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None: ...


class Listener(Protocol):
    """Hears of changes of leadership, on the event loop, after the state machine knows what led to them."""

    def on_leadership(self, term: int, leader: MemberKey | None, *, is_mine: bool) -> None:
        """`is_mine` when this member leads and has applied everything that earlier leaders committed."""
        ...

    def on_write_refused(self) -> None:
        """The log could not be written, for example because the disk is full; that is tried again."""
        ...

    def on_failure(self, error: BaseException) -> None:
        """The member has fallen silent: its disk or its state machine cannot be trusted any more."""
        ...
