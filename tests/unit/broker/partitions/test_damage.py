"""Damage that is met anywhere is repaired where it is, not where somebody began to read."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.protocol.record_batch import CorruptBatch
from millstream.storage.compaction.job import CleaningFailure
from millstream.testing.clock import ManualClock
from support.logs import append_values, new_log

ABSENT = cast(Any, None)
PARTITION = cast(Any, SimpleNamespace(topic="t", index=0))


@pytest.fixture
def found() -> list[tuple[Any, int]]:
    return []


@pytest.fixture
def faults(found: list[tuple[Any, int]]) -> StorageFaults:
    faults = StorageFaults(BrokerMetrics.create(), ManualClock(), ABSENT, ABSENT)
    faults.on_damage = lambda partition, offset: found.append((partition, offset))
    return faults


def test_the_segment_after_a_gap_is_repaired(faults: StorageFaults, found: list[tuple[Any, int]]) -> None:
    """Of a compacted log: nothing is left from offset 0 on before the second segment, and that one is damaged."""
    log = new_log(segment_bytes=100)
    for value in (b"a", b"b", b"c"):
        append_values(log, value * 60)
    second = log.segments[1]
    second.summary.compacted = True
    cast(Any, log.disk).flip_bit(second.log_path, 65)
    with pytest.raises(CorruptBatch) as met:
        log.read(second.base_offset, 1 << 20, log.log_end_offset)
    faults.damaged(PARTITION, 0, met.value)
    assert found == [(PARTITION, second.base_offset)]


def test_what_the_cleaner_finds_is_repaired(faults: StorageFaults, found: list[tuple[Any, int]]) -> None:
    cleaner = Cleaner(ABSENT, ABSENT, ABSENT, faults, ABSENT, ABSENT, 1000)
    path = f"/data/topics/t/partition-0/{7:020d}.log"
    cleaner._note_failure(PARTITION, CleaningFailure(path, 0, "record batch fails its checksum"))
    assert found == [(PARTITION, 7)]
