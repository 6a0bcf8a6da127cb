"""Compares the replicas of a partition: each node reads its own copy, and the checksums are compared.

Between the highest log start and the lowest high watermark. Replicas compact by themselves, so of a compacted log only
the part that none has compacted yet is compared; the rest is still read and its batches verified.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.backup.source import Place, log_checksum
from millstream.client.errors import ClientError
from millstream.client.wire.cluster import Cluster
from millstream.protocol.errors import ErrorCode
from millstream.protocol.log_checksum import LogChecksum

_CHUNK_BYTES = 32 << 20
_NOTHING = 0


@dataclass(frozen=True, slots=True)
class Difference:
    node: int
    offset: int
    message: str


@dataclass(slots=True)
class ComparedPartition:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    compared_from: int = 0
    compared_to: int = 0
    size_bytes: int = 0
    """The bytes of one replica."""
    differences: list[Difference] = field(default_factory=list)
    away: list[int] = field(default_factory=list)
    """Nodes that could not be asked."""

    @property
    def is_same(self) -> bool:
        return not self.differences and not self.away


Answer = LogChecksum | str
"""The text if the node reports that its copy is damaged."""


@dataclass(slots=True)
class ReplicaComparer:
    cluster: Cluster
    place: Place
    replicas: Sequence[int]
    leader: int
    read: Callable[[int], None] = lambda _size: None

    def compare(self) -> ComparedPartition:
        result = ComparedPartition(self.place.topic, self.place.index, tuple(self.replicas))
        states = self._states(result)
        if not states:
            return result
        reference = self.leader if self.leader in states else min(states)
        for node, state in states.items():
            # Records that only this replica has, or has compacted, cannot be compared, but their checksums must hold.
            self._verify_alone(node, state.log_start_offset, self._start(states), result)
        self._compare(reference, states, result)
        return result

    def _states(self, result: ComparedPartition) -> dict[int, LogChecksum]:
        states: dict[int, LogChecksum] = {}
        for node in self.replicas:
            try:
                # Up to offset 0: reads nothing, only asks where the log begins and ends.
                states[node] = log_checksum(self.cluster, node, self.place, 0, _NOTHING, 1)
            except (OSError, ClientError) as error:
                if isinstance(error, ClientError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR.name:
                    result.differences.append(Difference(node, 0, str(error)))
                else:
                    result.away.append(node)
                if isinstance(error, OSError):
                    self.cluster.close()
        return states

    @staticmethod
    def _start(states: dict[int, LogChecksum]) -> int:
        starts = [max(each.log_start_offset, each.cleaned_offset) for each in states.values()]
        return min(max(starts), *(each.high_watermark for each in states.values()))

    def _verify_alone(self, node: int, offset: int, until: int, result: ComparedPartition) -> None:
        while offset < until:
            found = self._ask(node, offset, until, _CHUNK_BYTES)
            if isinstance(found, str):
                result.differences.append(Difference(node, self._damaged_at(node, offset, until), found))
                return
            if not found.size_bytes:
                return
            self.read(found.size_bytes)
            offset = found.next_offset

    def _damaged_at(self, node: int, offset: int, until: int) -> int:
        limit = _CHUNK_BYTES
        while limit > 1:
            half = limit // 2
            found = self._ask(node, offset, until, half)
            if isinstance(found, LogChecksum):
                offset, limit = found.next_offset, limit - half
            else:
                limit = half
        return offset

    def _compare(self, reference: int, states: dict[int, LogChecksum], result: ComparedPartition) -> None:
        offset = result.compared_from = self._start(states)
        until = result.compared_to = min(each.high_watermark for each in states.values())
        others = [node for node in states if node != reference]
        while offset < until:
            expected = self._ask(reference, offset, until, _CHUNK_BYTES)
            unequal = [
                node for node in others if not _same(self._ask(node, offset, until, _CHUNK_BYTES), expected)
            ]
            moved = self._moved_start(offset, states)
            if moved > offset:
                # Retention or compaction went on meanwhile: the difference may be records deleted on one side only.
                offset = result.compared_from = min(moved, until)
                continue
            if isinstance(expected, str) and not others:
                result.differences.append(
                    Difference(reference, self._damaged_at(reference, offset, until), expected)
                )
                return
            if unequal or isinstance(expected, str):
                for node in unequal or others:
                    result.differences.append(self._first_difference(reference, node, offset, until))
                return
            if not expected.size_bytes:
                return
            self.read(expected.size_bytes * len(states))
            result.size_bytes += expected.size_bytes
            offset = expected.next_offset

    def _moved_start(self, offset: int, states: dict[int, LogChecksum]) -> int:
        now = ComparedPartition(self.place.topic, self.place.index, tuple(states))
        fresh = self._states(now)
        return self._start(fresh) if fresh else offset

    def _first_difference(self, reference: int, node: int, offset: int, until: int) -> Difference:
        """The part from `offset` on differs: narrow the difference down to one batch."""
        limit = _CHUNK_BYTES
        while limit > 1:
            half = limit // 2
            expected = self._ask(reference, offset, until, half)
            if isinstance(expected, LogChecksum) and _same(self._ask(node, offset, until, half), expected):
                offset, limit = expected.next_offset, limit - half
            else:
                limit = half
        expected, found = self._ask(reference, offset, until, 1), self._ask(node, offset, until, 1)
        if isinstance(expected, str):
            return Difference(reference, offset, expected)
        if isinstance(found, str):
            return Difference(node, offset, found)
        return Difference(node, offset, f"{_words(found)}, and on node {reference} {_words(expected)}")

    def _ask(self, node: int, offset: int, until: int, limit: int) -> Answer:
        def ask() -> Answer:
            try:
                return log_checksum(self.cluster, node, self.place, offset, until, limit)
            except ClientError as error:
                if error.code in (ErrorCode.CORRUPT_MESSAGE.name, ErrorCode.KAFKA_STORAGE_ERROR.name):
                    return str(error)
                raise

        return self.cluster.patiently(f"node {node} does not answer for {self.place}", ask)


def _same(one: Answer, other: Answer) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return False
    return (one.next_offset, one.size_bytes, one.crc) == (other.next_offset, other.size_bytes, other.crc)


def _words(found: LogChecksum) -> str:
    if not found.size_bytes:
        return "there is nothing"
    return f"a batch of {found.size_bytes} bytes up to offset {found.next_offset - 1} has checksum {found.crc:08x}"
