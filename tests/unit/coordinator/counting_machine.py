"""The smallest state machine that does everything a shard has to deal with: it adds numbers up, by name."""

from dataclasses import dataclass, field

from millstream.coordinator.decision import Decision, Reply
from millstream.protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True)
class Add:
    name: str
    amount: int


@dataclass(frozen=True)
class Get:
    name: str


@dataclass(frozen=True)
class Wait:
    """Answered by the next `Add`, or with -1 when `timeout_ms` has passed."""

    timeout_ms: int = 60_000


@dataclass(frozen=True)
class Fill:
    count: int


@dataclass(frozen=True)
class Break:
    pass


Request = Add | Get | Wait | Fill | Break


@dataclass
class CountingMachine:
    totals: dict[str, int] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)

    def handle(self, request: Request, token: int, now_ms: int) -> Decision[Add, int]:
        if isinstance(request, Get):
            return Decision(replies=(Reply(token, self.totals.get(request.name, 0)),))
        if isinstance(request, Wait):
            self.waiting.append((now_ms + request.timeout_ms, token))
            return Decision()
        if isinstance(request, Break):
            self.totals["half"] = 1
            raise ZeroDivisionError
        if isinstance(request, Fill):
            records = [Add(f"n{n}", 1) for n in range(request.count)]
            for record in records:
                self.replay(record)
            return Decision(records, (Reply(token, request.count),), atomic=False)
        if request.amount < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "only more")
        self.replay(request)
        woken = [Reply(waiter, self.totals[request.name]) for _, waiter in self.waiting]
        self.waiting.clear()
        return Decision((request,), (Reply(token, self.totals[request.name]), *woken))

    def replay(self, record: Add) -> None:
        self.totals[record.name] = self.totals.get(record.name, 0) + record.amount

    def loaded(self, now_ms: int) -> Decision[Add, int]:
        return Decision()

    def next_deadline(self) -> int | None:
        return min((due for due, _ in self.waiting), default=None)

    def on_time(self, now_ms: int) -> Decision[Add, int]:
        late = [token for due, token in self.waiting if due <= now_ms]
        self.waiting = [(due, token) for due, token in self.waiting if due > now_ms]
        return Decision(replies=tuple(Reply(token, -1) for token in late))

    def encode(self, record: Add) -> tuple[bytes, bytes | None]:
        return record.name.encode(), str(record.amount).encode()

    def decode(self, key: bytes, value: bytes | None) -> Add | None:
        return None if value is None else Add(key.decode(), int(value))
