"""A ShareFetch whose queues are all loaded on this node: it has no task, and costs nothing while it waits."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from millstream.broker.api.call import Call
from millstream.broker.shares.consumers import Delivery, acquire_from
from millstream.broker.shares.led_queue import LedQueue
from millstream.broker.shares.session_work import Work
from millstream.broker.shares.taken import Wanted
from millstream.protocol.errors import KafkaError


class DirectFetch:
    __slots__ = ("_answer", "_found", "_left", "_queues", "_slot", "_timer", "_wanted", "_work")

    def __init__(self, work: Work, call: Call, answer: Callable[[], Any]) -> None:
        """`answer` is called when everything in `work` is durable or has failed."""
        self._work = work
        self._answer = answer
        self._slot = call.reply_later(on_abandoned=self._stop_waiting, on_hurried=self._end)
        self._queues: list[LedQueue] = []
        self._found: list[Delivery] = []
        self._wanted: Wanted | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0

    def begin(self, wanted: Wanted | None, max_wait_s: float) -> None:
        """Lock messages that are available or arrive in time. If `wanted` is None, only wait for settlements."""
        self._wanted = wanted
        if wanted is not None:
            self._queues = self._work.led_here()
            if not self._acquire(self._queues) and self._queues and max_wait_s > 0:
                for queue in self._queues:
                    queue.await_available(self._available)
                self._timer = asyncio.get_running_loop().call_later(max_wait_s, self._end)
                return
        self._store()

    def _acquire(self, queues: Sequence[LedQueue]) -> bool:
        assert self._wanted is not None
        self._found = acquire_from(queues, self._work.session.member, self._wanted)
        return bool(self._found)

    def _available(self, queue: LedQueue) -> None:
        """Messages may be available in this queue, or it has moved to another node. The others would call too."""
        if self._acquire((queue,)) or not queue.is_current:
            self._end()

    def _end(self) -> None:
        if self._stop_waiting():
            self._store()

    def _stop_waiting(self) -> bool:
        """Whether the fetch was waiting."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        for queue in self._queues:
            queue.stop_waiting(self._available)
        return True

    def _store(self) -> None:
        queues = self._work.touched(self._found)
        self._left = len(queues)
        if not queues:
            self._reply()
        for queue in queues:
            queue.when_stored(partial(self._stored, queue))

    def _stored(self, queue: LedQueue, error: KafkaError | None) -> None:
        if error is not None:
            self._work.not_stored(queue, error.as_value())
            self._found = [each for each in self._found if each.queue is not queue]
        self._left -= 1
        if not self._left:
            self._reply()

    def _reply(self) -> None:
        work = self._work
        work.deliver(self._found)
        if not self._found:
            work.note_moved(self._queues)
        self._slot.answer(self._answer())
