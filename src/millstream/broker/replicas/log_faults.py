"""Describes what is wrong with this node's disk and logs, for `millstream cluster status` and /health."""

from collections.abc import Iterator

from millstream.broker.api.call import Call
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.broker.partitions.writability import Writability
from millstream.broker.replicas.repair import Repairs
from millstream.config.units import format_size
from millstream.protocol.log_faults import Faults, LogFault, NodeFault

_MOST_TOLD = 1000


class LogFaults:
    def __init__(
        self, node_id: int, partitions: Partitions, repairs: Repairs, writability: Writability
    ) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._repairs = repairs
        self._writability = writability

    @property
    def of_node(self) -> NodeFault | None:
        """Why the node takes no writes at all."""
        disk = self._writability
        if disk.can_write:
            return None
        if disk.has_room:
            return NodeFault(
                self._node_id,
                "its disk does not answer: writes are refused",
                f"look at the disk of {disk.data_dir}, and at what else is busy there; it goes on by itself",
            )
        return NodeFault(
            self._node_id,
            f"its disk is full: {format_size(disk.free_bytes())} are left, and writes are refused",
            f"make room at {disk.data_dir}: shorten retention.ms of a large topic, or delete one; it goes on by itself",
        )

    def __iter__(self) -> Iterator[LogFault]:
        for partition in self._partitions:
            if partition.log.offline is not None:
                yield LogFault(
                    partition.topic,
                    partition.index,
                    f"node {self._node_id} cannot use its files: {partition.log.offline.message}",
                    f"check the disk of node {self._node_id}, then start it again",
                )
        yield from self.damaged()

    def damaged(self) -> Iterator[LogFault]:
        """Damaged logs, without those whose files cannot be used at all."""
        for partition in self._partitions:
            if partition.log.offline is None and partition.log.segments.damaged:
                yield self._damaged(partition)

    def _damaged(self, partition: Partition) -> LogFault:
        me, log = self._node_id, partition.log
        place = partition.topic, partition.index
        ranges = [
            (each.base_offset, each.summary.end_offset)
            for each in log.segments
            if each.base_offset in log.segments.damaged
        ]
        where = ", ".join(f"{max(start, log.log_start_offset)} to {end - 1}" for start, end in ranges)
        if self._repairs.is_alone(partition):
            end = max((end for _, end in ranges), default=log.log_start_offset)
            return LogFault(
                *place,
                f"records among offsets {where} are damaged or missing on node {me}, and there is no other replica",
                f"stop node {me}, put the files back into {log.directory} from a backup, and start it; or give up all"
                f" records up to there: `millstream topic trim {partition.topic}:{partition.index} --before-offset"
                f" {end}`",
            )
        delay = self._repairs.unrepaired.get(partition)
        if delay is not None and delay.advice:
            return LogFault(*place, delay.reason, delay.advice)
        why = f"; not repaired yet: {delay.reason}" if delay is not None else ""
        return LogFault(
            *place,
            f"records among offsets {where} are damaged or missing on node {me}{why}",
            "it is repaired from another replica by itself; see that the nodes of its replicas are up",
            mends_itself=True,
        )


def handle(faults: LogFaults, _request: None, _call: Call) -> Faults:
    logs = tuple(each for each, _ in zip(faults, range(_MOST_TOLD), strict=False))
    return Faults(logs, faults.of_node)
