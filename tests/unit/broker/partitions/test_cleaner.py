"""A disk that fails while compacted segments take the place of others; a repair that a cleaning is in the way of."""

import asyncio
import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from millstream.broker.partitions.cleaner import Cleaner
from millstream.broker.partitions.opened_batches import OpeningLimits
from millstream.broker.partitions.storage_faults import StorageFaults
from millstream.config.topic import TopicConfig
from millstream.observability.broker_metrics import BrokerMetrics
from millstream.protocol.errors import KafkaError
from millstream.runtime.host import Finished
from millstream.storage.log_health import LogWork
from millstream.testing.disk import SimulatedDisk
from support.log_stories import StepFault
from support.logs import Store, append, batch_of, cleaned, flush, read_values

ABSENT = cast(Any, None)
COMPACTED = TopicConfig(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


class _Inline:
    """Threads, and the flusher, do their work at once; after the flusher's the disk has a fault."""

    def __init__(self, fault: StepFault) -> None:
        self._fault = fault

    async def run(self, work: Callable[[], None]) -> None:
        work()

    async def sync(self, partition: Any) -> None:
        flush(partition.log)
        partition.log.disk.faults.add(self._fault)


def compacted_with_a_fault(step: int) -> tuple[Store, list[str], bool]:
    """The store after one step of the swap failed, why its node was ended, and whether the swap failed."""
    store = Store(SimulatedDisk(step), {"t": COMPACTED})
    log = store.log()
    log.trust()
    for number in range(12):
        append(log, batch_of([b"value %d" % number], key=b"k%d" % (number % 2)))
    flush(log)
    store.checkpoint()
    result = cleaned(log)
    assert result is not None
    partition = cast(Any, SimpleNamespace(log=log, has_other_replicas=True))
    reasons: list[str] = []
    faults = StorageFaults(BrokerMetrics.create(), store.clock, cast(Any, [partition]), reasons.append)
    inline = cast(Any, _Inline(StepFault(step, errno.EIO, 1)))
    machine = cast(Any, SimpleNamespace(disk=store.disk, workers=inline, clock=store.clock))
    cleaner = Cleaner(machine, ABSENT, inline, faults, ABSENT, ABSENT, 1000)
    try:
        asyncio.run(cleaner._swap(partition, result.groups[0]))
    except (OSError, KafkaError):
        return store, reasons, True
    finally:
        store.disk.faults.clear()
    return store, reasons, False


def test_files_and_segments_agree_or_the_log_is_offline_and_the_node_ends() -> None:
    step, renames_failed = 0, 0
    while True:
        store, reasons, has_failed = compacted_with_a_fault(step)
        log = store.log()
        if log.offline is None:
            assert read_values(log)[-2:] == [b"value 10", b"value 11"], step
            assert all(store.disk.size(each.log_path) == each.summary.size_bytes for each in log.segments)
            assert not reasons
        else:
            renames_failed += 1
            assert len(reasons) == 1
        store.disk.restart()
        store.open()
        assert read_values(store.log())[-2:] == [b"value 10", b"value 11"], step
        if not has_failed:
            break
        step += 1
    assert renames_failed > 1, "one for each file that is renamed"
    assert step > renames_failed


class _Endless:
    """A host whose cleaning process ends only when it is killed."""

    def __init__(self) -> None:
        self.begun, self._killed = asyncio.Event(), asyncio.Event()

    async def start_process(self, _command: object) -> Any:
        return self

    async def communicate(self, _job: bytes) -> Finished:
        self.begun.set()
        await self._killed.wait()
        return Finished(-9, b"", b"")

    async def kill(self) -> None:
        self._killed.set()


class _Partition(SimpleNamespace):
    __hash__ = object.__hash__


def a_log_to_clean() -> tuple[Store, Any]:
    store = Store(topics={"t": COMPACTED})
    log = store.log()
    log.trust()
    for number in range(12):
        append(log, batch_of([b"value %d" % number], key=b"k%d" % (number % 2)))
    flush(log)
    store.checkpoint()
    end = log.log_end_offset
    return store, _Partition(topic="t", index=0, log=log, last_stable_offset=end, awaits_repair=set())


def cleaner_of(store: Store, host: Any, partition: Any) -> Cleaner:
    machine = cast(Any, SimpleNamespace(disk=store.disk, clock=store.clock, expiry=store.clock, host=host))
    return Cleaner(machine, cast(Any, [partition]), ABSENT, ABSENT, ABSENT, OpeningLimits(), 1000)


def test_the_cleaning_of_a_damaged_log_ends_for_its_repair() -> None:
    async def clean_and_repair() -> None:
        store, partition = a_log_to_clean()
        host = _Endless()
        cleaner = cleaner_of(store, host, partition)
        cleaning = asyncio.ensure_future(cleaner.clean(partition))
        await host.begun.wait()
        assert partition.log.work is LogWork.CLEANING
        other, _ = a_log_to_clean()
        await cleaner.end_cleaning(other.log())
        assert partition.log.work is LogWork.CLEANING
        await cleaner.end_cleaning(partition.log)
        await asyncio.wait([cleaning])
        assert isinstance(cleaning.exception(), OSError)
        assert partition.log.work is LogWork.NOTHING

    asyncio.run(clean_and_repair())


def test_a_log_that_awaits_a_repair_is_not_cleaned() -> None:
    store, partition = a_log_to_clean()
    cleaner = cleaner_of(store, ABSENT, partition)
    assert cleaner._choose() == [partition]
    partition.awaits_repair.add(0)
    assert cleaner._choose() == []
