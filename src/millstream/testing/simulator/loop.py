"""An event loop on virtual time: nothing waits, the clock goes to whatever comes next."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.testing.simulator.process import CURRENT, Process
from millstream.testing.simulator.violation import Violation

if TYPE_CHECKING:
    from millstream.testing.simulator.network import Network

Result = TypeVar("Result")

# More than any honest moment has: beyond it somebody waits by asking again and again.
_MOST_STEPS_A_MOMENT = 200_000


class Stuck(AssertionError):
    """Nothing is left to happen, or time does not go on."""


class _Handle(asyncio.Handle):
    """As asyncio's, without what only debugging needs: a run makes tens of thousands of them."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = None, ()


class _Timer(_Handle, asyncio.TimerHandle):
    """The same for what comes later; a cancelled one is left out when its time comes."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True


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
        """A fingerprint of everything that happened, in its order; equal for equal runs."""
        self.failures: list[dict[str, Any]] = []
        self.violation: Violation | None = None
        """Ends the run, wherever it was found: the program's own handling of errors must not hide it."""
        self._now = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._sequence = 0
        self._steps_before = 0

    # -- the simulation's side

    def run(self, main: Coroutine[Any, Any, Result], context: Context | None = None) -> Result:
        """Run until `main` is done; what else is under way stays where it is."""
        asyncio._set_running_loop(self)
        self._is_running = True
        try:
            task = asyncio.Task(main, loop=self, name="main", context=context)
            while not task.done():
                self._step()
            return task.result()
        finally:
            self._is_running = False
            asyncio._set_running_loop(None)

    def note(self, *facts: int) -> None:
        """Something happened that makes this run what it is."""
        self.trace = hash((self.trace, *facts))

    def resume(self, process: Process) -> None:
        process.is_paused = False
        held, process.held = process.held, []
        self._ready.extend(held)

    def violated(self, message: str) -> None:
        self.violation = self.violation or Violation(message)

    def _step(self) -> None:
        if self.violation is not None:
            raise self.violation
        ready = self._ready
        if not ready:
            self._advance()
        elif self.steps - self._steps_before > _MOST_STEPS_A_MOMENT:
            raise Stuck(f"time stands still at {self._now:.6f}; next is {ready[0]!r}")
        current = CURRENT
        count = len(ready)
        self.steps += count
        for _ in range(count):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(current)
            if process is None or (process.is_alive and not process.is_paused):
                handle._run()
            elif process.is_alive:
                process.held.append(handle)

    def _advance(self) -> None:
        """To the next moment at which something happens; all that is due then becomes ready, in order."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            raise Stuck("nothing is left to happen")
        self._now = now = timers[0][0]
        self._steps_before = self.steps
        self.trace = hash((self.trace, now, self.steps))
        ready = self._ready
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])

    # -- asyncio.AbstractEventLoop

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Timer(when, callback, args, self, context)
        self._sequence += 1
        heappush(self._timers, (max(self._now, when), self._sequence, handle))
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

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def __del__(self) -> None:
        """There is nothing of the system's to give back."""

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)
