"""A whole node on a simulated machine: started, killed, paused and started again."""

import asyncio
from dataclasses import replace

from millstream.broker.node import Node
from millstream.cluster.raft.state import RaftSettings
from millstream.config.settings import Settings
from millstream.observability.logs import get_logger
from millstream.runtime.invariant import InvariantViolation
from millstream.testing.simulator.loop import Process
from millstream.testing.simulator.machine import Machine

TICK_MS = 300
"""A tick wakes a node up, and mostly finds nothing to do."""

RAFT = RaftSettings(heartbeat_ticks=2, election_ticks=4, snapshot_retry_ticks=30, write_retry_ticks=5)
"""An election after 1.2 to 2.4 seconds of silence."""


log = get_logger("millstream.simulator")

PORT = 9092


class SimulatedNode:
    """`broker` is the program's present life; None while none runs."""

    def __init__(self, machine: Machine, node_id: int, settings: Settings) -> None:
        self.machine = machine
        self.node_id = node_id
        self.broker: Node | None = None
        self.ended: str | None = None
        """Why the program ended by itself."""
        self.ends: list[str] = []
        """All reasons for which the node's programs ended by themselves."""
        self.lives = 0
        self.settings = replace(
            settings, broker=replace(settings.broker, id=node_id, host=machine.name, port=PORT)
        )
        self._ending: Node | None = None

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def process(self) -> Process:
        return self.machine.process

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def serving(self) -> Node | None:
        """The program, if clients may connect to it."""
        return self.broker if self.broker is not None and self.broker.is_serving else None

    @property
    def has_failed_logs(self) -> bool:
        return self.broker is not None and any(
            partition.log.offline is not None for partition in self.broker.partitions
        )

    def start(self) -> None:
        assert self.broker is None
        self.lives += 1
        self.ended = None
        process = self.machine.start()
        loop = self.machine.loop
        loop.network.machine_up(self.name)
        machine = self.machine
        broker = process.context.run(Node, self.settings, machine.disk, machine.clock, loop, machine, RAFT)
        self.broker = broker
        loop.create_task(self._live(broker), name=f"node {self.node_id}", context=process.context)

    def crash(self, *, power_loss: bool) -> None:
        self.broker = None
        if power_loss:
            self.machine.loop.network.machine_down(self.name)
        self.machine.crash(power_loss=power_loss)

    async def stop(self) -> None:
        """A clean stop; call it from outside the program."""
        broker = self.broker
        if broker is not None:
            context = self.process.context
            stopping = self.machine.loop.create_task(self._end(broker), name="stop", context=context)
            await asyncio.wait([stopping], timeout=60)

    async def _live(self, broker: Node) -> None:
        """As `broker.process.run`: start, then wait for a reason to end."""
        try:
            await broker.start()
        except InvariantViolation:
            raise
        except Exception as error:  # noqa: BLE001 - a node that cannot start says why, and is started again
            log.warning("node did not start", error=repr(error))
            self.ended = f"did not start: {error!r}"
        else:
            await asyncio.wait([broker.failure])
            self.ended = str(broker.failure.exception())
        self.ends.append(self.ended)
        await self._end(broker)

    async def _end(self, broker: Node) -> None:
        if self._ending is broker:
            return
        self._ending = broker
        try:
            await broker.stop()
        except Exception as error:  # noqa: BLE001
            log.warning("node did not stop in order", error=repr(error))
        if self.broker is broker:
            self.broker = None
            self.machine.crash(power_loss=False)
