"""An event loop on virtual time: nothing waits, the clock jumps to the next event.

A `Process` is one life of a simulated program, from its start to its end or crash.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from millstream.testing.simulator.network import Network


class Violation(AssertionError):
    """The message names the rule, who broke it, and how it was seen."""


CURRENT: "ContextVar[Process | None]" = ContextVar("millstream_simulated_process", default=None)


class Process:
    """Callbacks in `context` belong to the program. A dead program never runs again; a paused one continues."""

    __slots__ = ("context", "held", "is_alive", "is_paused", "machine", "tasks")

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.is_alive = True
        self.is_paused = False
        self.held: list[Any] = []
        """Callbacks held back until the program continues, or kept permanently so that nothing of a dead program is
        collected.
        """
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept even when dead: a collected task would run its `finally` blocks, at no simulated moment."""
        self.context = Context()
        self.context.run(CURRENT.set, self)

    def keep(self, task: "asyncio.Task[Any]") -> None:
        tasks = self.tasks
        tasks.append(task)
        if len(tasks) >= 512 and len(tasks) & (len(tasks) - 1) == 0:
            self.tasks = [each for each in tasks if not each.done()]


Result = TypeVar("Result")

# More callbacks than any correct moment has; beyond this, something polls in a busy loop.
_MOST_STEPS_A_MOMENT = 200_000
_NO_CONTEXT = Context()


class Stuck(AssertionError):
    """No event is left, or time does not advance."""


class _Handle:
    """The parts of asyncio's handles that programs use: a run creates tens of thousands.

    A cancelled handle has no callback and is skipped when its time comes.
    """

    __slots__ = ("_args", "_callback", "_context", "_when")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, when: float = 0.0
    ) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = context
        self._when = when

    def cancel(self) -> None:
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._callback is None

    def when(self) -> float:
        return self._when


def _nothing(*_args: object, **_options: object) -> _Handle:
    """Called instead of a callback once the loop is closed."""
    return _Handle(_nothing, (), _NO_CONTEXT)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs the callbacks of all simulated programs, in an order that the calls alone decide.

    `failures` are exceptions that no program handled: each is a bug of the program, or of the simulation.
    """

    _is_closed = False
    _is_running = False

    def __init__(self) -> None:
        super().__init__()
        self.network: Network
        self.steps = 0
        self.trace = 0
        """A fingerprint of all events in order; equal for equal runs."""
        self.failures: list[dict[str, Any]] = []
        self.violation: Violation | None = None
        """Ends the run wherever the violation was found: the program's own error handling must not hide it."""
        self._now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = 0

    # -- the simulation's side

    def run(self, main: Coroutine[Any, Any, Result], context: Context | None = None) -> Result:
        """Run until `main` is done; other tasks stay where they are."""
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            task = asyncio.Task(main, loop=self, name="main", context=context)
            while not task.done():
                self._moment()
            return task.result()
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)

    def resume(self, process: Process) -> None:
        process.is_paused = False
        if process.is_alive:
            held, process.held = process.held, []
            self._ready.extend(held)

    def violated(self, message: str) -> None:
        self.violation = self.violation or Violation(message)

    def _moment(self) -> None:
        """Run everything that is ready; if nothing is, jump to the next moment and run what is due then, in order."""
        ready, current = self._ready, CURRENT
        if not ready:
            self._advance()
        most = self.steps + _MOST_STEPS_A_MOMENT
        while ready:
            handle = ready.popleft()
            self.steps += 1
            callback, context = handle._callback, handle._context
            if callback is None:
                continue
            process = context.get(current)
            if process is not None and (process.is_paused or not process.is_alive):
                process.held.append(handle)
                continue
            try:
                context.run(callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio: one callback's error is not another's
                self.call_exception_handler({"message": f"exception in {callback!r}", "exception": error})
            if self.violation is not None:
                raise self.violation
            if self.steps > most:
                raise Stuck(f"time stands still at {self._now:.6f}; last was {callback!r}")

    def _advance(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._callback is None:
            heappop(timers)
        if not timers:
            raise Stuck("nothing is left to happen")
        self._now = now = timers[0][0]
        self.trace = hash((self.trace, now, self.steps))
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])

    # -- asyncio.AbstractEventLoop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self._put(self._now + delay, callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self._put(when, callback, args, context)

    def _put(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> _Handle:
        if when < self._now:
            when = self._now
        handle = _Handle(callback, args, copy_context() if context is None else context, when)
        self._sequence += 1
        heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Result] | Generator[Any, None, Result],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Result]":
        task: asyncio.Task[Result] = asyncio.Task(
            coro, loop=self, name=None if name is None else str(name), context=context
        )
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None:
            process.keep(task)
        return task

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> asyncio.AbstractServer:
        listener = self.network.listen(protocol_factory, host, port)
        listener.is_serving_now = options.get("start_serving", True)
        return listener

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        return await self.network.connect(protocol_factory, host, port)

    # Not a method: asyncio calls it for every future and task it creates, and bool() returns False.
    get_debug = staticmethod(bool)

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def __del__(self) -> None:
        """There are no system resources to release."""

    def close(self) -> None:
        """Nothing runs any more: calls made by programs during teardown are ignored."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        for name in ("call_soon", "call_soon_threadsafe", "call_later", "call_at"):
            setattr(self, name, _nothing)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)
