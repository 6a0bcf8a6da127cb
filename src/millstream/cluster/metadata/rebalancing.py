"""The controller's eye on leadership: preferred leaders get it back, some at a time."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from millstream.cluster.metadata.leader_elections import RestorePreferredLeaders
from millstream.observability.logs import get_logger
from millstream.protocol.errors import KafkaError

# Between two rounds, so that clients that follow the leaders do not all come at once.
_PAUSE_SECONDS = 0.2

_log = get_logger("millstream.cluster.metadata")


class RebalanceSettings(msgspec.Struct, frozen=True):
    interval_seconds: float = 300.0
    allowed_percent: int = 10
    """Of the partitions that a broker should lead, this many in a hundred may be led by others."""


class Rebalancing:
    """Made anew for each time that this node leads; the first look is after a whole interval."""

    def __init__(
        self, settings: RebalanceSettings, restore: Callable[[RestorePreferredLeaders], Awaitable[int]]
    ) -> None:
        self._settings = settings
        self._restore = restore
        self._task = asyncio.create_task(self._watch(), name="rebalancing")

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
