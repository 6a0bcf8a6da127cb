"""No node answers from memory: whoever tells a client of a partition, or of a group, knows the newest that was
acknowledged anywhere.
"""

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
    """Fetch, ListOffsets, OffsetForLeaderEpoch and all that coordinators answer, at the moment of the answer.

    A commit of offsets is none of them: its acknowledgement rests on those who are in sync. Nor is what followers are
    read for, who are behind by design.
    """

    def __init__(self, violated: Callable[[str], None], partitions: PartitionWatch) -> None:
        self.answers = 0
        self._violated = violated
        self._partitions = partitions

    @contextmanager
    def installed(self) -> Iterator[None]:
        """See every answer that is given meanwhile."""
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
                f" epoch {partition.leader_epoch} with what lies below {partition.high_watermark}; up to {newer} was"
                " committed in a later one"
            )
