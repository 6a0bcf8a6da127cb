"""The smallest state machine that does everything a coordinator has to deal with: it adds numbers up, by name."""

import msgspec

from millstream.coordinator.decision import Decision, Reply, Request, StateMachine
from millstream.protocol.errors import ErrorCode, KafkaError


class Added(msgspec.Struct, frozen=True):
    name: str
    amount: int


class Cheer(msgspec.Struct, frozen=True):
    """An effect: the name has reached a hundred."""

    name: str


class Add(Request[int], frozen=True):
    """Answered with the sum."""

    name: str
    amount: int


class Get(Request[int], frozen=True):
    name: str


class Wait(Request[int], frozen=True):
    """Answered by the next `Add`, or with -1 when `timeout_ms` has passed."""

    timeout_ms: int = 60_000


class Fill(Request[int], frozen=True):
    count: int


class Break(Request[int], frozen=True):
    pass


CountingRequest = Add | Get | Wait | Fill | Break
Decided = Decision[Added, int, Cheer]


class CountingMachine(StateMachine[CountingRequest, Added, int, Cheer]):
    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.waiting: list[tuple[int, int]] = []
        self.offsets: list[int] = []
        self.trims_below: int | None = None
        self.was_loaded_at: int | None = None

    def handle(self, request: CountingRequest, token: int, now_ms: int) -> Decided:
        if isinstance(request, Get):
            return Decision(replies=(Reply(token, self.totals.get(request.name, 0)),))
        if isinstance(request, Wait):
            self.waiting.append((now_ms + request.timeout_ms, token))
            return Decision()
        if isinstance(request, Break):
            self.totals["half"] = 1
            raise ZeroDivisionError
        if isinstance(request, Fill):
            records = [Added(f"n{n}", 1) for n in range(request.count)]
            for record in records:
                self.replay(record)
            return Decision(records, (Reply(token, request.count),), atomic=False)
        if request.amount < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "only more")
        added = Added(request.name, request.amount)
        self.replay(added)
        total = self.totals[request.name]
        woken = [Reply(waiter, total) for _, waiter in self.waiting]
        self.waiting.clear()
        cheers = (Cheer(request.name),) if total == 100 else ()
        return Decision((added,), (Reply(token, total), *woken), effects=cheers)

    def replay(self, record: Added) -> None:
        self.totals[record.name] = self.totals.get(record.name, 0) + record.amount

    def loaded(self, now_ms: int, /) -> Decided:
        self.was_loaded_at = now_ms
        return Decision()

    def next_deadline(self) -> int | None:
        return min((due for due, _ in self.waiting), default=None)

    def on_time(self, now_ms: int, /) -> Decided:
        late = [token for due, token in self.waiting if due <= now_ms]
        self.waiting = [(due, token) for due, token in self.waiting if due > now_ms]
        return Decision(replies=tuple(Reply(token, -1) for token in late))

    def encode(self, record: Added) -> tuple[bytes, bytes | None]:
        return record.name.encode(), str(record.amount).encode()

    def decode(self, key: bytes, value: bytes | None) -> Added | None:
        return None if value is None else Added(key.decode(), int(value))

    def stored(self, _record: Added, offset: int, /) -> None:
        self.offsets.append(offset)

    def needed_from(self) -> int | None:
        return self.trims_below
