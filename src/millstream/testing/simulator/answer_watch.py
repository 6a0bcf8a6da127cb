"""No node answers from stale state: an answer about a partition or a group reflects the newest acknowledged write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millstream.broker.coordinators.hosted import Hosted
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.coordinator.decision import Request
from millstream.testing.simulator.loop import CURRENT
from millstream.testing.simulator.partition_watch import PartitionWatch


class AnswerWatch:
    """Checks Fetch, ListOffsets, OffsetForLeaderEpoch and all answers of coordinators at the moment of the answer.

    Offset commits are not checked: their acknowledgement depends on the in-sync replicas. Reads from followers are not
    checked either, because followers may lag.
    """

    def __init__(self, violated: Callable[[str], None], partitions: PartitionWatch) -> None:
        self.answers = 0
        self._violated = violated
        self._partitions = partitions

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Check every answer given within the `with` block."""
        find, ask = Partitions.find_for_client, Hosted.ask

        def found(self_: Partitions, topic: str | bytes, index: int, *, followed: bool = False) -> Partition:
            partition = find(self_, topic, index, followed=followed)
            if partition.is_leader:
                self._answered(partition, "clients")
            return partition

        async def asked(self_: Hosted[Any], key: str, request: Request[Any]) -> Any:
            answer = await ask(self_, key, request)
            partition = self_._partitions.get(self_.topic, self_.partition_of(key))
            if partition is not None:
                self._answered(partition, f"{key} ({type(request).__name__})")
            return answer

        setattr(Partitions, "find_for_client", found)  # noqa: B010 - a method in place of a method
        setattr(Hosted, "ask", asked)  # noqa: B010
        try:
            yield
        finally:
            setattr(Partitions, "find_for_client", find)  # noqa: B010
            setattr(Hosted, "ask", ask)  # noqa: B010

    def _answered(self, partition: Partition, whom: str) -> None:
        self.answers += 1
        newer = self._partitions.committed_after(partition)
        if newer is not None and newer > partition.high_watermark:
            process = CURRENT.get()
            self._violated(
                f"{partition.topic}-{partition.index}: {'-' if process is None else process.machine} answers {whom} in"
                f" epoch {partition.leader_epoch} with records below {partition.high_watermark}; up to {newer} was"
                " committed in a later one"
            )
