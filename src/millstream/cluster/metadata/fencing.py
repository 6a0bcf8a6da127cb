"""The controller's watch over the brokers: who is silent for a session is fenced, through the quorum."""

import asyncio
from collections.abc import Awaitable, Callable

from millstream.cluster.metadata.brokers import FenceBroker, Heartbeat
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.sessions import BrokerSessions
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError

_CHECKS_PER_SESSION = 10

_log = get_logger("millstream.cluster.metadata")


class Fencing:
    """Made anew for each time that this node leads: a new controller gives every broker a whole session."""

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
        self._task = self._loop.create_task(self._watch(), name="fencing")

    def note(self, command: object) -> None:
        """A command was taken: if it is a sign of life, it counts as one."""
        if isinstance(command, Heartbeat):
            self._sessions.heard(command.broker_id, self._loop.time())

    def stop(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / _CHECKS_PER_SESSION)
            brokers = self._image().brokers
            live = [broker.broker_id for broker in brokers.values() if not broker.is_fenced]
            for broker_id in self._sessions.expired(live, self._loop.time()):
                try:
                    if await self._fence(FenceBroker(broker_id, brokers[broker_id].epoch)):
                        _log.warning(
                            "broker fenced: no sign of life", broker=broker_id, seconds=self._seconds
                        )
                except KafkaError as error:
                    _log.warning("broker not fenced yet", broker=broker_id, error=error.message)
