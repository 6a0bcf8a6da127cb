"""The controller's watch over the brokers: who is silent for a session is fenced, through the quorum."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from millstream.cluster.metadata.brokers import FenceBroker, Heartbeat
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.sessions import BrokerSessions
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError
from millstream.runtime.sometimes import sometimes

_CHECKS_PER_SESSION = 10

_log = get_logger("millstream.cluster.metadata")


class Fencing:
    """Made anew for each time that this node leads: a new controller gives every broker a whole session.

    One whose process is known to have ended is not waited for, and the session of the controller before began when it
    was last heard.
    """

    def __init__(
        self,
        session_seconds: float,
        image: Callable[[], MetadataImage],
        fence: Callable[[FenceBroker], Awaitable[bool]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = session_seconds
        self._image = image
        self._fence = fence
        self._sessions = BrokerSessions(session_seconds, self._loop.time())
        self._gone: dict[int, int] = {}
        self._woken = asyncio.Event()
        self._task = self._loop.create_task(self._watch(), name="fencing")

    def note(self, command: object) -> None:
        """A command was taken: if it is a sign of life, it counts as one."""
        if isinstance(command, Heartbeat):
            self._sessions.heard(command.broker_id, self._loop.time())
            self._gone.pop(command.broker_id, None)

    def heard_before(self, broker_id: int, at: float) -> None:
        """When this node heard from that broker before it became the controller.

        Half a session is left to it in any case: it may be another who did not hear it.
        """
        self._sessions.heard(broker_id, max(at, self._loop.time() - self._seconds / 2))

    def gone(self, broker_id: int, epoch: int) -> None:
        """The broker's process of that epoch has ended; a sign of life that comes after all counts more."""
        self._gone[broker_id] = epoch
        self._woken.set()

    def stop(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds / _CHECKS_PER_SESSION):
                    await self._woken.wait()
            self._woken.clear()
            for broker_id, epoch in list(self._gone.items()):
                if await self._fence_one(broker_id, epoch, "broker fenced: its process has ended"):
                    self._gone.pop(broker_id, None)
            brokers = self._image().brokers
            live = [broker.broker_id for broker in brokers.values() if not broker.is_fenced]
            for broker_id in self._sessions.expired(live, self._loop.time()):
                await self._fence_one(broker_id, brokers[broker_id].epoch, "broker fenced: no sign of life")

    async def _fence_one(self, broker_id: int, epoch: int, news: str) -> bool:
        """Whether it is settled: the broker is fenced, or has another epoch."""
        try:
            if await self._fence(FenceBroker(broker_id, epoch)):
                sometimes("a broker was fenced")
                _log.warning(news, broker=broker_id, session_seconds=self._seconds)
        except KafkaError as error:
            _log.warning("broker not fenced yet", broker=broker_id, error=error.message)
            return False
        return True
