"""The controller fences brokers whose sessions expire, and gives leadership back to preferred leaders."""

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
    """Created whenever this node becomes controller; every broker then gets a full session.

    A broker whose own settings give it a longer session gets that one: it answers reads by its own leases.

    The previous controller gets one too, because its leases are not known here. A broker whose process is known to
    have ended is fenced at once.
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
        self._sessions = BrokerSessions(session_seconds, self._loop.time(), self._own_seconds)
        self._ended_brokers: dict[int, int] = {}
        self._has_ended_brokers = asyncio.Event()
        self._task = self._loop.create_task(keep_going(self._watch), name="fencing")

    def note(self, command: object) -> None:
        """Count the command as a sign of life if it is a heartbeat."""
        if isinstance(command, BrokerHeartbeat):
            self._sessions.heard(command.broker_id, self._loop.time())
            self._ended_brokers.pop(command.broker_id, None)

    def gone(self, broker_id: int, epoch: int) -> None:
        """The broker's process of that epoch has ended; a later heartbeat disproves it."""
        self._ended_brokers[broker_id] = epoch
        self._has_ended_brokers.set()

    def stop(self) -> None:
        self._task.cancel()

    def _own_seconds(self, broker_id: int) -> float:
        broker = self._image().brokers.get(broker_id)
        return 0.0 if broker is None else broker.session_ms / 1000

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._seconds / _CHECKS_PER_SESSION):
                    await self._has_ended_brokers.wait()
            self._has_ended_brokers.clear()
            # Fencing takes time, during which the next broker may send a heartbeat and get a new lease.
            for broker_id, epoch in list(self._ended_brokers.items()):
                if self._ended_brokers.get(broker_id) == epoch and await self._fence_one(
                    broker_id, epoch, "process ended"
                ):
                    self._ended_brokers.pop(broker_id, None)
            brokers = self._image().brokers
            live = [broker.broker_id for broker in brokers.values() if not broker.is_fenced]
            for broker_id in self._sessions.expired(live, self._loop.time()):
                if self._sessions.is_silent(broker_id, self._loop.time()):
                    await self._fence_one(broker_id, brokers[broker_id].epoch, "no heartbeats")

    async def _fence_one(self, broker_id: int, epoch: int, reason: str) -> bool:
        """Whether this is settled: the broker is fenced, or has another epoch."""
        try:
            if await self._fence(FenceBroker(broker_id, epoch)):
                sometimes("a broker was fenced")
                _log.warning("broker fenced", broker=broker_id, reason=reason, session_seconds=self._seconds)
        except KafkaError as error:
            _log.warning("broker not fenced", broker=broker_id, error=error.message)
            return False
        return True


class BrokerSessions:
    """Times are seconds of a monotonic clock, passed in by the caller.

    `own_seconds` is a broker's own timeout; the longer one counts.
    """

    __slots__ = ("_checked_at", "_heard_at", "_own_seconds", "_timeout")

    def __init__(
        self, timeout_seconds: float, now: float, own_seconds: Callable[[int], float] = lambda _: 0.0
    ) -> None:
        self._timeout = timeout_seconds
        self._own_seconds = own_seconds
        self._heard_at: dict[int, float] = {}
        self._checked_at = now

    def heard(self, broker_id: int, now: float) -> None:
        self._heard_at[broker_id] = now

    def expired(self, brokers: Iterable[int], now: float) -> list[int]:
        """Which of `brokers` have been silent for too long; the time of a broker never heard from begins now.

        Call it several times within a timeout: after a longer pause of this node itself, silence proves nothing.
        """
        pause = now - self._checked_at
        self._checked_at = now
        if pause > self._timeout / 2:
            self._heard_at = {broker: at + pause for broker, at in self._heard_at.items()}
        return [broker for broker in brokers if self.is_silent(broker, now)]

    def is_silent(self, broker_id: int, now: float) -> bool:
        """Whether the broker was silent for a whole timeout since its last heartbeat, or since it was first checked."""
        silent_for = now - self._heard_at.setdefault(broker_id, now)
        return silent_for > max(self._timeout, self._own_seconds(broker_id))


# Between two rounds, so that clients do not all move to the new leaders at once.
_PAUSE_SECONDS = 0.2


class RebalanceSettings(msgspec.Struct, frozen=True):
    interval_seconds: float = 300.0
    allowed_percent: int = 10
    """The percentage of a broker's preferred partitions that others may lead."""


class Rebalancing:
    """Created whenever this node becomes controller; the first check is after a full interval."""

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
                _log.info("preferred leaders restored", partitions=moved)
