"""The controller's watch over the brokers: a broker that is silent for a session is fenced, through the quorum."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import msgspec

from millstream.cluster.metadata.brokers import BrokerHeartbeat, FenceBroker
from millstream.cluster.metadata.image import MetadataImage
from millstream.cluster.metadata.leader_elections import RestorePreferredLeaders
from millstream.observability.logs import get_logger
from millstream.observability.tasks import keep_going
from millstream.protocol.errors import KafkaError
from millstream.runtime.sometimes import sometimes

_CHECKS_PER_SESSION = 10

_log = get_logger("millstream.cluster.metadata")


class Fencing:
    """Made each time that this node begins to lead: a new controller gives every broker a whole session.

    Also the controller before it: what leases brokers have from others is not known here. One whose process is known
    to have ended is not waited for.
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
        self._task = self._loop.create_task(keep_going(self._watch), name="fencing")

    def note(self, command: object) -> None:
        """A command was taken: if it is a sign of life, it counts as one."""
        if isinstance(command, BrokerHeartbeat):
            self._sessions.heard(command.broker_id, self._loop.time())
            self._gone.pop(command.broker_id, None)

    def gone(self, broker_id: int, epoch: int) -> None:
        """The broker's process of that epoch has ended; a later heartbeat proves that it has not."""
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
            # To fence one takes a while, in which the next may give a sign of life and have a lease from that.
            for broker_id, epoch in list(self._gone.items()):
                if self._gone.get(broker_id) == epoch and await self._fence_one(
                    broker_id, epoch, "broker fenced: its process has ended"
                ):
                    self._gone.pop(broker_id, None)
            brokers = self._image().brokers
            live = [broker.broker_id for broker in brokers.values() if not broker.is_fenced]
            for broker_id in self._sessions.expired(live, self._loop.time()):
                if self._sessions.is_silent(broker_id, self._loop.time()):
                    await self._fence_one(
                        broker_id, brokers[broker_id].epoch, "broker fenced: no sign of life"
                    )

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


class BrokerSessions:
    """Times are seconds of any clock that does not jump; the caller says what time it is."""

    __slots__ = ("_checked_at", "_heard_at", "_timeout")

    def __init__(self, timeout_seconds: float, now: float) -> None:
        self._timeout = timeout_seconds
        self._heard_at: dict[int, float] = {}
        self._checked_at = now

    def heard(self, broker_id: int, now: float) -> None:
        self._heard_at[broker_id] = now

    def heard_at(self, broker_id: int) -> float | None:
        return self._heard_at.get(broker_id)

    def expired(self, brokers: Iterable[int], now: float) -> list[int]:
        """Which of `brokers` have been silent for too long; for one that was never heard, the time begins now.

        Call it several times within a timeout: after a longer pause of this node itself, silence proves nothing.
        """
        pause = now - self._checked_at
        self._checked_at = now
        if pause > self._timeout / 2:
            self._heard_at = {broker: at + pause for broker, at in self._heard_at.items()}
        return [broker for broker in brokers if self.is_silent(broker, now)]

    def is_silent(self, broker_id: int, now: float) -> bool:
        """Whether it has not been heard for a whole timeout, or, never heard, was not asked about for as long."""
        return now - self._heard_at.setdefault(broker_id, now) > self._timeout


# Between two rounds, so that clients that follow the leaders do not all come at once.
_PAUSE_SECONDS = 0.2


class RebalanceSettings(msgspec.Struct, frozen=True):
    interval_seconds: float = 300.0
    allowed_percent: int = 10
    """Of the partitions that a broker should lead, this many in a hundred may be led by others."""


class Rebalancing:
    """Made each time that this node begins to lead; the first look is after a whole interval."""

    def __init__(
        self, settings: RebalanceSettings, restore: Callable[[RestorePreferredLeaders], Awaitable[int]]
    ) -> None:
        self._settings = settings
        self._restore = restore
        self._task = asyncio.create_task(keep_going(self._watch), name="rebalancing")

    def stop(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        command = RestorePreferredLeaders(self._settings.allowed_percent)
        while True:
            await asyncio.sleep(self._settings.interval_seconds)
            moved = 0
            try:
                while count := await self._restore(command):
                    moved += count
                    await asyncio.sleep(_PAUSE_SECONDS)
            except KafkaError as error:
                _log.warning("leaders not moved", error=error.message)
            if moved:
                _log.info("leadership given back to preferred leaders", partitions=moved)
