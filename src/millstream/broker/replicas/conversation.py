"""Requests and replies over one connection to a leader, until it breaks or nothing is left to follow."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from millstream.broker.replicas.link import ReplicaLink
from millstream.protocol.api import FETCH
from millstream.protocol.replica_fetch import VERSION

Replied = Callable[["Conversation", int, memoryview], None]


class Conversation:
    """`ended` is done when the conversation has ended, with an error if the connection broke.

    Replies are handled where they arrive, without a task in between. During `work` on one, later ones are kept.
    """

    __slots__ = ("_later_replies", "_loop", "_patience", "_timer", "ended", "link", "waiting", "work")

    def __init__(self, loop: asyncio.AbstractEventLoop, link: ReplicaLink, patience_seconds: float) -> None:
        self.link = link
        self.ended: asyncio.Future[None] = loop.create_future()
        self.work: asyncio.Task[None] | None = None
        self.waiting: deque[float] = deque()
        """When the requests were sent whose replies are not handled yet."""
        self._later_replies: deque[Callable[[], None]] = deque()
        self._loop = loop
        self._patience = patience_seconds
        self._timer = loop.call_later(patience_seconds, self._watch)

    @property
    def is_busy(self) -> bool:
        return self.work is not None

    def send(self, number: int, request: bytes, replied: Replied) -> None:
        self.waiting.append(self._loop.time())
        try:
            self.link.post(FETCH, VERSION, request, partial(self._received, number, replied), flexible=True)
        except ConnectionError as error:
            self.end(error)

    def resume(self) -> None:
        """The work is done: handle the replies that came meanwhile."""
        self.work = None
        while self._later_replies and not self.is_busy and not self.ended.done():
            self._later_replies.popleft()()

    def end(self, error: BaseException | None = None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    def close(self) -> None:
        self._timer.cancel()
        self._later_replies.clear()
        if not self.ended.done():
            self.ended.cancel()
        elif not self.ended.cancelled():
            # The waiting task may have been stopped in the same turn: then nobody needs the error.
            self.ended.exception()

    def _received(self, number: int, replied: Replied, body: memoryview | None) -> None:
        if self.ended.done():
            return
        if body is None:
            self.end(ConnectionError("the connection was lost"))
        elif self.is_busy:
            self._later_replies.append(partial(self._hand_on, number, replied, body))
        else:
            self._hand_on(number, replied, body)

    def _hand_on(self, number: int, replied: Replied, body: memoryview) -> None:
        self.waiting.popleft()
        try:
            replied(self, number, body)
        except Exception as error:  # noqa: BLE001 - raised where the conversation is waited for
            self.end(error)

    def _watch(self) -> None:
        """End it when a reply is overdue; checked periodically, as a timer for each request would cost more."""
        now = self._loop.time()
        if self.waiting and not self.is_busy and now - self.waiting[0] > self._patience:
            self.end(TimeoutError(f"no answer for {self._patience} s"))
            return
        self._timer = self._loop.call_later(self._patience / 4, self._watch)
