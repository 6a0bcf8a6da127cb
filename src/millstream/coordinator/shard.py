"""One partition of an internal topic: its state machine, its log, and the replies that wait for the log.

For safety a reply is sent only when every record that its decision could have seen is durable.
docs/decisions/coordinator-runtime.md explains why decisions run ahead of the log, and what a failed append does.
"""

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from millstream.coordinator.decision import (
    CoordinatorLog,
    Decision,
    NotDecided,
    Reply,
    Request,
    StateMachine,
    append_failure,
    is_expected,
)
from millstream.coordinator.rounds import Encoded, Rounds
from millstream.observability.logs import get_logger
from millstream.protocol.compression import Compression
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import CONTROL_BIT, read_header
from millstream.protocol.records import Record, encode_batch, iter_records
from millstream.runtime.clock import SteadyTime

A = TypeVar("A")
M = TypeVar("M", bound=StateMachine[Any, Any, Any, Any])

_log = get_logger(__name__)

# How many records, or batches without any, are replayed in one turn of the loop; batches are unpacked in pieces.
_REPLAYED_AT_ONCE = 200
_PIECE_BYTES = 16 * 1024
_DECODE_LIMIT_BYTES = 256 * 1024 * 1024
_LONGEST_PAUSE_MS = 30_000


class ShardLimits(msgspec.Struct, frozen=True):
    batch_bytes: int = 1024 * 1024
    pending_bytes: int = 64 * 1024 * 1024
    reload_pause_ms: int = 1_000
    """The pause after a failed load; doubled each time, up to half a minute."""
    rebuild_pause_ms: int = 250
    """The pause before the state is rebuilt again if nothing was written since the last rebuild."""
    trimmed_records: int = 10_000
    """The log is trimmed when at least this many records are no longer needed."""


class ShardState(enum.Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class Shard(Generic[M]):
    def __init__(
        self,
        name: str,
        log: CoordinatorLog,
        new_machine: Callable[[], M],
        time: SteadyTime,
        limits: ShardLimits,
        perform: Callable[[Any], None],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """`perform` starts an effect; `pause` yields to the loop in long work."""
        self._name = name
        self._log = log
        self._new_machine = new_machine
        self._time = time
        self._limits = limits
        self._perform = perform
        self._pause = pause
        self.machine = new_machine()
        self._rounds: Rounds[Any, Any] = Rounds(limits.batch_bytes)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_token = 0
        self._writer: asyncio.Task[None] | None = None
        self._loader: asyncio.Task[None] | None = None
        self._trimmer: asyncio.Task[None] | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._trimmed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._reload_pause_ms = limits.reload_pause_ms
        self._has_written = True
        self.state = ShardState.LOADING

    def load(self) -> asyncio.Task[None]:
        """Build the machine from the log; until then requests are refused as in Kafka."""
        self.state = ShardState.LOADING
        self._loader = asyncio.get_running_loop().create_task(self._load())
        return self._loader

    def decide(self, request: Request[A]) -> "asyncio.Future[A]":
        """Decide now; the answer comes once it is durable. NotDecided when no decision is possible here and now."""
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
            self._abandon("deciding a request failed", error, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return future

    def close(self, error: KafkaError) -> None:
        """Give the partition up: waiting callers get `error`, and look for the new coordinator."""
        self.state = ShardState.CLOSED
        for task in (self._writer, self._loader, self._trimmer, self._ticker):
            if task is not None:
                task.cancel()
        self._drop_all(error)

    def _require_active(self) -> None:
        if self.state is ShardState.ACTIVE:
            if self._rounds.pending_bytes > self._limits.pending_bytes:
                raise NotDecided(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} has too much unwritten")
            return
        if self.state is ShardState.CLOSED:
            raise NotDecided(ErrorCode.NOT_COORDINATOR, f"{self._name} is not coordinated here")
        if self.state is ShardState.FAILED:
            raise NotDecided(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._name} cannot be read")
        raise NotDecided(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._name} is being loaded")

    def _accept(self, decision: Decision[Any, Any, Any]) -> None:
        if decision.records:
            encode = self.machine.encode
            encoded = [Encoded(record, *encode(record)) for record in decision.records]
            self._rounds.add(encoded, atomic=decision.atomic)
            if self._writer is None:
                self._writer = asyncio.get_running_loop().create_task(self._write())
        if self._rounds:
            self._rounds.hold(decision.replies, decision.effects)
        else:
            self._release(decision.replies, decision.effects)

    async def _write(self) -> None:
        rounds = self._rounds
        try:
            while rounds:
                current = rounds.begin()
                now_ms = self._time.now_ms()
                records = [Record(i, now_ms, key, value) for i, (_, key, value) in enumerate(current.records)]
                last_offset = await self._log.append(
                    encode_batch(records, codec=Compression.NONE, base_offset=0)
                )
                if rounds is not self._rounds:
                    return
                rounds.finish()
                self._has_written = True
                stored = self.machine.stored
                for offset, entry in enumerate(current.records, last_offset - len(records) + 1):
                    stored(entry.record, offset)
                self._release(current.replies, current.effects)
                self._trim()
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            if rounds is self._rounds:
                self._abandon("an append failed", error, append_failure(error))
        finally:
            self._writer = None

    def _release(self, replies: Sequence[Reply[Any]], effects: Sequence[Any]) -> None:
        for reply in replies:
            future = self._waiting.pop(reply.token, None)
            if future is None or future.done():
                continue
            if isinstance(reply.answer, KafkaError):
                future.set_exception(reply.answer)
            else:
                future.set_result(reply.answer)
        for effect in effects:
            try:
                self._perform(effect)
            except Exception:  # noqa: BLE001 - the records keep it pending
                _log.error(
                    "coordinator effect failed", partition=self._name, effect=repr(effect), exc_info=True
                )

    def _trim(self) -> None:
        before = self.machine.needed_from()
        if (
            before is not None
            and self._trimmer is None
            and before - self._trimmed >= self._limits.trimmed_records
        ):
            self._trimmer = asyncio.get_running_loop().create_task(self._trim_before(before))

    async def _trim_before(self, before: int) -> None:
        try:
            await self._log.trim(before)
            self._trimmed = before
        except (KafkaError, OSError) as error:
            # Unneeded records may stay: the next append tries again to trim them.
            _log.warning("coordinator log not trimmed", partition=self._name, error=str(error))
        finally:
            self._trimmer = None

    def _abandon(self, reason: str, error: BaseException, error_for_callers: KafkaError) -> None:
        """State and log may differ now: answer everyone, and rebuild the state from the log."""
        expected = is_expected(error)
        tell = _log.warning if expected else _log.error
        # Only unexpected errors need a traceback, not a temporary lack of in-sync replicas.
        trace = {} if expected else {"exc_info": error}
        tell("coordinator rebuilt", partition=self._name, reason=reason, error=str(error), **trace)
        self._drop_all(error_for_callers)
        if self._has_written:
            self._has_written = False
            self.load()
            return
        # Due work is written as soon as a machine is loaded: without a pause the node would do nothing else.
        self.state = ShardState.LOADING
        pause_seconds = self._limits.rebuild_pause_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(pause_seconds, self._load_again)

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
            # Records that are being appended must be read back too.
            await asyncio.wait({self._writer})
        try:
            machine = self._new_machine()
            await self._replay(machine)
            # A new leader's log may end with records that no other replica has yet, and that could still be lost.
            await self._log.settled()
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            self._load_failed(error)
            return
        self._reload_pause_ms = self._limits.reload_pause_ms
        self.machine = machine
        self.state = ShardState.ACTIVE
        now_ms = self._time.now_ms()
        try:
            self._accept(machine.loaded(now_ms))
            self._arm_timer(now_ms)
        except Exception as error:  # noqa: BLE001 - as above
            self._load_failed(error)

    async def _replay(self, machine: M) -> None:
        for number, record in enumerate(self._records()):
            # Before the first record too, because many partitions may be loaded at once.
            if number % _REPLAYED_AT_ONCE == 0:
                await self._pause()
            decoded = machine.decode(record.key or b"", record.value) if record is not None else None
            if record is not None and decoded is not None:
                machine.replay(decoded)
                machine.stored(decoded, record.offset)

    def _records(self) -> Iterator[Record | None]:
        """Yields None at the start of each batch, because a batch may have no records."""
        for batch in self._log.read_from(-1):
            yield None
            if not read_header(memoryview(batch)).attributes & CONTROL_BIT:
                yield from iter_records(batch, _DECODE_LIMIT_BYTES, _PIECE_BYTES)

    def _load_failed(self, error: Exception) -> None:
        """Schedule a retry: sessions must end on time, even without a request."""
        pause_ms = self._reload_pause_ms
        self._reload_pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
        trace = {} if is_expected(error) else {"exc_info": error}
        _log.error(
            "coordinator unreadable",
            partition=self._name,
            error=str(error),
            again_in_seconds=pause_ms / 1000,
            **trace,
        )
        self.state = ShardState.FAILED
        self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._load_again)

    def _load_again(self) -> None:
        self._timer = None
        self.load()

    def _arm_timer(self, now_ms: int) -> None:
        if self._ticker is not None:
            # It sets the timer when it is done.
            return
        deadline_ms = self.machine.next_deadline()
        if self._timer is not None:
            if deadline_ms is not None and self._timer_ms <= deadline_ms:
                # The timer fires early and is set again: cheaper than moving it with every heartbeat.
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_seconds = max(deadline_ms - now_ms, 0) / 1000
            self._timer_ms = deadline_ms
            self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._ticker = asyncio.get_running_loop().create_task(self._do_what_is_due())

    async def _do_what_is_due(self) -> None:
        # The same moment may be due in all partitions: each does its part in a turn of its own.
        await self._pause()
        self._ticker = None
        if self.state is not ShardState.ACTIVE:
            return
        now_ms = self._time.now_ms()
        try:
            self._accept(self.machine.on_time(now_ms))
            self._arm_timer(now_ms)
        except Exception as error:  # noqa: BLE001 - whatever it was, no client may be left waiting
            self._abandon("a deadline was not handled", error, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
