"""An operator who changes the cluster during faults: moves replicas, alters a topic's settings, adds partitions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import inf

from millstream.cluster.metadata.image import TopicImage
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode
from millstream.testing.history.operations import Anomaly
from millstream.testing.history.registers import Read, Write, judge_registers
from millstream.testing.simulator.client import NoAnswer, SimulatedClient
from millstream.testing.simulator.mover import Mover, grow

log = get_logger("millstream.operator")

_SECONDS = 6.0
_TOPIC, _SET = 2, 0
_PAUSE_SECONDS = 4.0
_MOST_PARTITIONS = 5
# Never fewer than two replicas: a reassignment must survive the loss of one.
_FACTORS = (2, 3, 3)
_VALUES = {
    "min.insync.replicas": ("1", "2", "2", "3"),
    "segment.bytes": ("1500", "6000"),
    # The default; set explicitly, it must be kept as well.
    "unclean.leader.election.enable": ("false",),
}
# For topics that have it from the beginning.
_OF_SOME = {"client.routing": ("direct", "proxy"), "flush.messages": ("1", "3", "1000000")}


class SimulatedOperator:
    """Operates on one topic. `does` are the kinds of work: "moves", "settings", "round_trips", "growth"."""

    def __init__(
        self,
        client: SimulatedClient,
        topic: str,
        partitions: int,
        nodes: Sequence[int],
        does: Sequence[str],
        configs: Mapping[str, str],
        mover: Mover | None = None,
        grown: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`configs` are those the topic is created with. `grown` is called with the new number of partitions."""
        self.client = client
        self.is_over = False
        self._topic = topic
        self._partitions = partitions
        self._nodes = list(nodes)
        self._mover = mover
        self._grown = grown
        works = {
            "moves": self._move,
            "settings": self._set,
            "round_trips": self._round_trip,
            "growth": self._grow,
        }
        self._works = [works[kind] for kind in does]
        self._values = _VALUES | {name: values for name, values in _OF_SOME.items() if name in configs}
        self._writes = [Write(f"{topic}: {name}", value, 0.0, 0.0) for name, value in configs.items()]
        """Alter settings; without an answer it is unknown whether they were, or will be, set."""

    async def work(self) -> None:
        random = self.client.random
        while self._works and not self.is_over:
            try:
                await random.choice(self._works)()
            except NoAnswer as error:
                log.info("no answer to the operator", error=str(error))
            await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))

    async def _move(self) -> None:
        """Move to other replicas, reorder them, or sometimes cancel the move."""
        random = self.client.random
        replicas = random.sample(self._nodes, min(random.choice(_FACTORS), len(self._nodes)))
        wanted = None if random.random() < 0.15 else replicas
        partition = random.randrange(self._partitions)
        reply = await self.client.call(
            self.client.any_node(), "alter_partition_reassignments", 0, _SECONDS, timeout=timedelta(seconds=5),
            topics=[{
                "name": self._topic, "partitions": [{"partition_index": partition, "replicas": wanted}],
            }],
        )  # fmt: skip
        codes = [each.error_code for topic in reply.responses for each in topic.partitions]
        log.warning("moved", partition=partition, replicas=wanted, codes=[reply.error_code, *codes])

    async def _round_trip(self) -> None:
        if self._mover is not None:
            await self._mover.round_trip(self._topic, self.client.random.randrange(self._partitions))

    async def _grow(self) -> None:
        if self._partitions >= _MOST_PARTITIONS:
            return
        wanted = self._partitions + 1
        if await grow(self.client, self._topic, wanted) in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            # Also if it had as many already: an earlier request was carried out, and its answer was lost.
            self._partitions = wanted
            self._grown(wanted)

    async def _set(self) -> None:
        random = self.client.random
        name = random.choice(list(self._values))
        value = random.choice(self._values[name])
        start = self.client.loop.time()
        try:
            code = await set_configs(self.client, self._topic, {name: value})
        except NoAnswer:
            code = int(ErrorCode.REQUEST_TIMED_OUT)
        end = self.client.loop.time() if code == ErrorCode.NONE else inf
        self._writes.append(Write(f"{self._topic}: {name}", value, start, end))
        log.warning("set", setting=name, value=value, code=code)

    def judge_settings(self, topic: TopicImage) -> list[Anomaly]:
        """Whether the acknowledged changes explain the topic's final state."""
        now = self.client.loop.time()
        keys = dict.fromkeys(write.key for write in self._writes)
        reads = [Read(key, topic.configs.get(key.removeprefix(f"{self._topic}: ")), now, now) for key in keys]
        return judge_registers(self._writes, reads)


async def set_configs(client: SimulatedClient, topic: str, configs: Mapping[str, str]) -> int:
    """Alter a topic's settings; returns the error code."""
    reply = await client.call(
        client.any_node(), "incremental_alter_configs", 0, _SECONDS,
        resources=[{
            "resource_type": _TOPIC, "resource_name": topic,
            "configs": [
                {"name": name, "config_operation": _SET, "value": value} for name, value in configs.items()
            ],
        }],
    )  # fmt: skip
    code: int = reply.responses[0].error_code
    return code
