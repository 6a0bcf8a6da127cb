"""One partition of an internal topic: its state machine, its log, and the replies that wait for the log.

The rule that makes this safe: a reply leaves only when every record its decision could have seen is durable.
docs/decisions/coordinator-runtime.md says why decisions run ahead of the log and what a failed append does.
"""

import asyncio
import enum
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from millstream.coordinator.decision import CoordinatorLog, Decision, Reply, StateMachine
from millstream.coordinator.errors import append_failure
from millstream.coordinator.rounds import Rounds
from millstream.observability.logs import get_logger
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CONTROL_BIT, read_header
from millstream.protocol.records import Record, decode_records, encode_batch
from millstream.runtime.clock import SteadyTime

Q = TypeVar("Q")
R = TypeVar("R")
A = TypeVar("A")

_log = get_logger(__name__)

_RECORDS_BETWEEN_YIELDS = 2_000
_DECODE_LIMIT_BYTES = 256 * 1024 * 1024


class ShardLimits(msgspec.Struct, frozen=True):
    batch_bytes: int = 1024 * 1024
    pending_bytes: int = 64 * 1024 * 1024
    reload_pause_ms: int = 1_000


class ShardState(enum.Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class Shard(Generic[Q, R, A]):
    def __init__(
        self,
        name: str,
        log: CoordinatorLog,
        new_machine: Callable[[], StateMachine[Q, R, A]],
        time: SteadyTime,
        limits: ShardLimits,
    ) -> None:
        self._name = name
        self._log = log
        self._new_machine = new_machine
        self._time = time
        self._limits = limits
        self.machine = new_machine()
        self._rounds: Rounds[A] = Rounds(limits.batch_bytes)
        self._waiting: dict[int, asyncio.Future[A]] = {}
        self._next_token = 0
        self._writer: asyncio.Task[None] | None = None
        self._loader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._failed_at_ms = 0
        self.state = ShardState.LOADING

    def load(self) -> asyncio.Task[None]:
        """Build the machine from the log; until that is done requests are refused as Kafka does."""
        self.state = ShardState.LOADING
        self._loader = asyncio.get_running_loop().create_task(self._load())
        return self._loader

    async def submit(self, request: Q) -> A:
        return await self.decide(request)

    def decide(self, request: Q) -> asyncio.Future[A]:
        """Decide now; the answer comes when it may leave."""
        self._require_active()
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        token = self._next_token
        self._next_token += 1
        self._waiting[token] = future
        now_ms = self._time.now_ms()
        try:
            self._accept(self.machine.handle(request, token, now_ms))
            self._arm_timer(now_ms)
        except KafkaError as error:
            self._accept(Decision(replies=(Reply(token, error),)))
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            self._abandon(f"deciding a request failed: {error!r}", KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return future

    def close(self, error: KafkaError) -> None:
        """Give the partition up: whoever waits is told to look for the new coordinator."""
        self.state = ShardState.CLOSED
        for task in (self._writer, self._loader):
            if task is not None:
                task.cancel()
        self._drop_all(error)

    def _require_active(self) -> None:
        if self.state is ShardState.ACTIVE:
            if self._rounds.pending_bytes > self._limits.pending_bytes:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} has too much unwritten")
            return
        if self.state is ShardState.CLOSED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._name} is not coordinated here")
        pause_over = self._time.now_ms() - self._failed_at_ms >= self._limits.reload_pause_ms
        if self.state is ShardState.FAILED and pause_over:
            self.load()
        if self.state is ShardState.FAILED:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} cannot be read")
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._name} is being loaded")

    def _accept(self, decision: Decision[R, A]) -> None:
        if decision.records:
            encoded = [self.machine.encode(record) for record in decision.records]
            self._rounds.add(encoded, atomic=decision.atomic)
            if self._writer is None:
                self._writer = asyncio.get_running_loop().create_task(self._write())
        if self._rounds:
            self._rounds.hold(decision.replies)
        else:
            self._answer(decision.replies)

    async def _write(self) -> None:
        rounds = self._rounds
        try:
            while rounds:
                current = rounds.begin()
                now_ms = self._time.now_ms()
                records = [Record(i, now_ms, key, value) for i, (key, value) in enumerate(current.records)]
                await self._log.append(encode_batch(records, codec=Compression.NONE, base_offset=0))
                if rounds is not self._rounds:
                    return
                rounds.finish()
                self._answer(current.replies)
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            if rounds is self._rounds:
                self._abandon(f"append failed: {error}", append_failure(error))
        finally:
            self._writer = None

    def _answer(self, replies: Sequence[Reply[A]]) -> None:
        for reply in replies:
            future = self._waiting.pop(reply.token, None)
            if future is None or future.done():
                continue
            if isinstance(reply.answer, KafkaError):
                future.set_exception(reply.answer)
            else:
                future.set_result(reply.answer)

    def _abandon(self, reason: str, error: KafkaError) -> None:
        """Nobody knows how state and log differ now: answer everyone and build the state anew."""
        _log.error("coordinator_rebuilt", partition=self._name, reason=reason, exc_info=True)
        self._drop_all(error)
        self.load()

    def _drop_all(self, error: KafkaError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rounds = Rounds(self._limits.batch_bytes)
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(KafkaError(error.code, error.message))

    async def _load(self) -> None:
        if self._writer is not None:
            # What is on its way into the log belongs to what is read from it.
            await asyncio.wait({self._writer})
        machine = self._new_machine()
        replayed = 0
        try:
            for batch in self._log.read_from(-1):
                if read_header(memoryview(batch)).attributes & CONTROL_BIT:
                    continue
                for record in decode_records(batch, _DECODE_LIMIT_BYTES):
                    decoded = machine.decode(record.key or b"", record.value)
                    if decoded is not None:
                        machine.replay(decoded)
                    replayed += 1
                    if replayed % _RECORDS_BETWEEN_YIELDS == 0:
                        await asyncio.sleep(0)
            # A new leader's log may end with what no other replica has yet: shown now, it could be lost afterwards.
            await self._log.settled()
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            _log.error("coordinator_unreadable", partition=self._name, error=str(error), exc_info=True)
            self.state = ShardState.FAILED
            self._failed_at_ms = self._time.now_ms()
            return
        self.machine = machine
        self.state = ShardState.ACTIVE
        now_ms = self._time.now_ms()
        self._accept(machine.loaded(now_ms))
        self._arm_timer(now_ms)

    def _arm_timer(self, now_ms: int) -> None:
        deadline_ms = self.machine.next_deadline()
        if self._timer is not None:
            if deadline_ms is not None and self._timer_ms <= deadline_ms:
                # It fires early and is armed anew: cheaper than moving it with every heartbeat.
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_seconds = max(deadline_ms - now_ms, 0) / 1000
            self._timer_ms = deadline_ms
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.state is not ShardState.ACTIVE:
            return
        now_ms = self._time.now_ms()
        try:
            self._accept(self.machine.on_time(now_ms))
            self._arm_timer(now_ms)
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            self._abandon(
                f"a deadline was not handled: {error!r}", KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            )
