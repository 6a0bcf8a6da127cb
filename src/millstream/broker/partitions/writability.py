"""Whether this node can write. While its disk is full or does not answer, other nodes lead."""

import asyncio
from collections.abc import Callable

from millstream.broker.machine import Machine
from millstream.broker.partitions.flusher import Flusher
from millstream.observability.logs import get_logger
from millstream.observability.repeats import Condition
from millstream.observability.tasks import keep_going
from millstream.runtime.sometimes import sometimes

log = get_logger("millstream.disk")

_ROOM_BYTES = 1 << 20
_LOOK_SECONDS = 0.5


class Writability:
    """Every heartbeat reports it to the controller. A single node keeps leading."""

    def __init__(
        self, machine: Machine, flusher: Flusher, data_dir: str, longest_sync_seconds: float
    ) -> None:
        self._machine = machine
        self._flusher = flusher
        self.data_dir = data_dir
        self._longest_sync_seconds = longest_sync_seconds
        self.make_way: Callable[[], None] | None = None
        """Reports to the controller at once that others have to lead; None on a single node."""
        self.has_room = True
        disk, now = log.bind(data=data_dir), machine.clock.monotonic
        self._full = Condition(disk, now, "disk full", "disk has room", is_error=True)
        self._silent = Condition(disk, now, "disk does not answer", "disk answers", is_error=True)

    def found_no_room(self) -> None:
        """A write failed because the disk is full."""
        if not self.has_room:
            return
        self.has_room = False
        sometimes("a disk was full")
        self._machine.tasks.spawn(keep_going(self._wait_for_room), "waiting for room")
        self._full.lasts(effect=self._effect)
        if self.make_way is not None:
            self.make_way()

    def free_bytes(self) -> int:
        return self._machine.disk.free_bytes(self.data_dir)

    @property
    def can_write(self) -> bool:
        """False also while the disk takes longer to answer than a follower may lag."""
        is_answering = self._flusher.longest_wait_seconds() <= self._longest_sync_seconds
        if is_answering:
            self._silent.ended()
        else:
            self._silent.lasts(effect=self._effect)
        return self.has_room and is_answering

    @property
    def _effect(self) -> str:
        return "writes refused" if self.make_way is None else "other nodes take over"

    async def _wait_for_room(self) -> None:
        """Wait until a file of some size can be written: writes that waited would fill a smaller gap at once."""
        disk, path = self._machine.disk, f"{self.data_dir}/room"

        def try_it() -> None:
            try:
                disk.write_atomically(path, bytes(_ROOM_BYTES), durable=False)
            finally:
                disk.unlink(path)

        while not self.has_room:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._machine.workers.run(try_it)
            except OSError:
                self._full.lasts(effect=self._effect)
                continue
            self.has_room = True
            self._full.ended()
            self._flusher.room_again()
