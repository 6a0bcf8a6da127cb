"""Somebody who runs the cluster while it is under fire: moves replicas about, and changes a topic's settings."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

from millstream.cluster.metadata.image import TopicImage
from millstream.observability.logs import get_logger
from millstream.protocol.errors import ErrorCode
from millstream.testing.simulator.client import NoAnswer, SimulatedClient

log = get_logger("millstream.operator")

_SECONDS = 6.0
_TOPIC, _SET = 2, 0
_PAUSE_SECONDS = 4.0
# Never fewer than two replicas: what is left of a reassignment must survive the loss of one.
_FACTORS = (2, 3, 3)
_VALUES = {
    "min.insync.replicas": ("1", "2", "2", "3"),
    "segment.bytes": ("1500", "6000"),
    # As it is by default; said aloud, it must be kept as well.
    "unclean.leader.election.enable": ("false",),
}


class SimulatedOperator:
    """Of one topic. `does` are the kinds of what it does: "moves", "settings"."""

    def __init__(
        self, client: SimulatedClient, topic: str, partitions: int, nodes: Sequence[int], does: Sequence[str]
    ) -> None:
        self.client = client
        self.is_over = False
        self._topic = topic
        self._partitions = partitions
        self._nodes = list(nodes)
        self._works = [{"moves": self._move, "settings": self._set}[kind] for kind in does]
        self._acknowledged: dict[str, str] = {}
        self._unknown: dict[str, set[str]] = {}
        """Values of settings of which nobody knows whether they were, or will be, set."""

    async def work(self) -> None:
        random = self.client.random
        while self._works and not self.is_over:
            try:
                await random.choice(self._works)()
            except NoAnswer as error:
                log.info("no answer to the operator", error=str(error))
            await asyncio.sleep(random.expovariate(1 / _PAUSE_SECONDS))

    async def _move(self) -> None:
        """To other replicas, in another order, or, now and then, back to where they were."""
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

    async def _set(self) -> None:
        random = self.client.random
        name = random.choice(list(_VALUES))
        value = random.choice(_VALUES[name])
        try:
            reply = await self.client.call(
                self.client.any_node(), "incremental_alter_configs", 0, _SECONDS,
                resources=[{
                    "resource_type": _TOPIC, "resource_name": self._topic,
                    "configs": [{"name": name, "config_operation": _SET, "value": value}],
                }],
            )  # fmt: skip
            code = reply.responses[0].error_code
        except NoAnswer:
            code = ErrorCode.REQUEST_TIMED_OUT
        if code == ErrorCode.NONE:
            self._acknowledged[name] = value
        else:
            self._unknown.setdefault(name, set()).add(value)
        log.warning("set", setting=name, value=value, code=code)

    def lost_settings(self, topic: TopicImage) -> Iterator[str]:
        """Settings that were acknowledged and are not what the topic has in the end."""
        for name, value in self._acknowledged.items():
            found = topic.configs.get(name)
            if found != value and found not in self._unknown.get(name, ()):
                yield f"{self._topic}: {name} is {found}; {value} was acknowledged last"
