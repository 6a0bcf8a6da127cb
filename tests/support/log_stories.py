"""Stories of a log, told by what a node does to it, that can be ended or troubled at every single step of the disk.

A `Teller` does what the node does, keeps account of what was acknowledged, and says after a restart what is wrong.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from uuid import UUID

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import KafkaError
from millstream.protocol.record_batch import CorruptBatch, read_header
from millstream.protocol.records import decode_records
from millstream.runtime.disk import NO_ROOM
from millstream.storage.layout import DROPPED_SUFFIX, SEGMENT_SUFFIXES
from millstream.storage.log import PartitionLog
from millstream.storage.log_health import NoRoom
from millstream.storage.repaired_segment import RepairedSegment
from millstream.storage.store import LogStore
from millstream.testing.disk import Operation, SimulatedDisk
from support.logs import DATA_DIR, NOW_MS, Store, append, batch_of, compact, flush

_TAKES_ROOM = (Operation.CREATE, Operation.WRITE, Operation.ALLOCATE, Operation.MAKE_DIRECTORY)
_KEYS = 3


class StepFault:
    """From the given step of the disk on, so many that could fail with `code` do."""

    def __init__(self, step: int, code: int, times: int) -> None:
        self._left, self.code, self._times = step, code, times
        self.short = False

    def strikes(self, operation: Operation, _path: str) -> bool:
        if operation in (Operation.READ, Operation.OPEN):
            return False
        self._left -= 1
        may_fail = self.code not in NO_ROOM or operation in _TAKES_ROOM
        if self._left >= 0 or not self._times or not may_fail:
            return False
        self._times -= 1
        return True


class _NumberedStore(Store):
    """Ids are numbers, so that each telling is the same."""

    ids = count(1)

    def open(self) -> "Store":
        self.store = LogStore(
            self.disk, self.clock, DATA_DIR, self.max_open_files, lambda: UUID(int=next(self.ids))
        )
        self.store.lock()
        self.reports = {}
        self.store.load(self.specs(), lambda report: self.reports.update({report.directory: report}))
        return self


class Teller:
    def __init__(self, config: TopicConfig, seed: int, *, is_replicated: bool) -> None:
        self.disk = SimulatedDisk(seed)
        self.store = _NumberedStore(self.disk, {"t": config})
        self._is_replicated = is_replicated
        self.log.trust()
        self.acknowledged: dict[int, bytes] = {}
        """Values that must be there, by offset."""
        self.rotten: range = range(0)
        """Offsets that need not be readable, because of damage that is not repaired yet."""
        self.ended = False
        """The node has ended, or its log is offline: nothing more is done to it."""
        self._appended: dict[int, bytes] = {}
        self._ever: dict[int, set[bytes]] = {}
        self._keys: dict[int, bytes] = {}
        self._least_start = 0
        self._number = 0
        self._epoch = 1

    @property
    def log(self) -> PartitionLog:
        return self.store.log()

    # -- what a node does

    @contextmanager
    def _node(self) -> Iterator[None]:
        """A full disk refuses; all else takes the log offline, and the node is started again."""
        try:
            yield
        except NoRoom:
            pass
        except KafkaError:
            if self.log.offline is None:
                raise
        except OSError as error:
            self.log.health.write_failed(error)
        self.ended = self.ended or self.log.offline is not None

    def append(self, times: int = 1) -> None:
        for _ in range(times):
            if self.ended:
                return
            self._number += 1
            offset, value = self.log.log_end_offset, b"value %d" % self._number
            key = self._keys[offset] = b"k%d" % (self._number % _KEYS)
            self._ever.setdefault(offset, set()).add(value)
            with self._node():
                append(self.log, batch_of([value], key=key), leader_epoch=self._epoch)
                self._appended[offset] = value

    def flush(self) -> None:
        if self.ended:
            return
        with self._node():
            flush(self.log)
            if not self.log.has_unsynced:
                self.acknowledged |= self._appended
                self._appended = {}

    def write(self, times: int) -> None:
        for _ in range(times):
            self.append()
            self.flush()

    def checkpoint(self) -> bool:
        """Whether there is one."""
        if not self.ended:
            with suppress(OSError):
                self.store.checkpoint()
                return True
        return False

    def delete_before(self, offset: int) -> None:
        """As DeleteRecords and retention do it."""
        if self.ended:
            return
        log, start = self.log, min(offset, self.log.flushed_offset)
        for values in (self.acknowledged, self._appended):
            for deleted in [at for at in values if at < start]:
                del values[deleted]
        is_written = False
        with self._node():
            log.advance_start(start)
            flush(log)
            is_written = True
            self._least_start = max(self._least_start, start)
        self.ended = self.ended or log.offline is not None
        count = min(log.segments.find(log.log_start_offset), log.settled_count)
        if self.ended or count <= 0:
            return
        with self._node():
            if not is_written:
                last = log.segments[count - 1]
                name = f"{last.base_offset:020d}{DROPPED_SUFFIX}"
                self.disk.rename(last.log_path, f"{log.directory}/{name}")
                log.place.remove(name)
                log.place.leave_word(last.base_offset)
            for path in log.drop_segments(count):
                for suffix in SEGMENT_SUFFIXES:
                    if self.disk.exists(path + suffix):
                        self.disk.rename(path + suffix, path + suffix + ".deleted")
                        self.disk.unlink(path + suffix + ".deleted")

    def cut(self, offset: int, *, is_given_up: bool = False) -> None:
        """As a follower does; given up where it leads before the cut is made."""
        self.flush()
        if self.ended:
            return
        log = self.log
        had = dict(self.acknowledged)
        if not is_given_up or offset > log.log_end_offset:
            # Where it begins elsewhere, nothing stays.
            kept = range(offset if offset <= log.log_end_offset else 0)
            self.acknowledged = {at: value for at, value in self.acknowledged.items() if at in kept}
        self._epoch += 1
        with self._node():
            planned = log.begin_truncation(offset, NOW_MS)
            try:
                planned.prepare(self.disk)
            except OSError as error:
                log.give_up(planned)
                raise log.health.write_failed(error) from error
            if is_given_up:
                log.give_up(planned)
                flush(log)
                self.acknowledged = had
                return
            log.truncate(planned)
            self._appended = {}
            flush(log)

    def compact(self) -> None:
        if not self.ended:
            with self._node():
                compact(self.log)

    def rot(self, which: int) -> None:
        """A bit of a sealed segment."""
        segment = self.log.segments[which]
        self.rotten = range(segment.base_offset, segment.summary.end_offset)
        self.disk.flip_bit(segment.log_path, 70)

    def repair(self, which: int, other: PartitionLog) -> None:
        if self.ended:
            return
        log = self.log
        damaged, following = log.segments[which : which + 2]
        with self._node():
            repaired = RepairedSegment(
                log, damaged.summary, following.base_offset, damaged.base_offset, NOW_MS
            )
            while not repaired.is_whole:
                repaired.add(
                    memoryview(other.read(repaired.next_offset, 1 << 20, following.base_offset).data)
                )
            repaired.write(self.disk)
            number = repaired.announce()
            flush(log)
            repaired.put_in_place(damaged, number)
            flush(log)
            self.rotten = range(0)

    def replace_topic(self) -> None:
        """Deleted and made again under its name, as the metadata says before anything is done here."""
        if self.ended:
            return
        self.store.topic_ids["t"] = bytes([self._number]) * 16
        self.acknowledged, self._appended, self._ever, self._least_start = {}, {}, {}, 0
        (spec,) = self.store.specs()
        try:
            moved = self.store.store.remove("t", 0)
            self.store.store.create(spec)
            if moved is not None:
                self.disk.sync_dir(moved.rpartition("/")[0])
                self.disk.remove_tree(moved)
        except OSError:
            self.ended = True

    def follow_with_gaps(self) -> None:
        """Batches of a leader that has compacted."""
        if self.ended:
            return
        self._number += 1
        offset, value = self.log.log_end_offset + 2, b"value %d" % self._number
        data = bytearray(batch_of([value], key=b"follower"))
        data[0:8], data[12:16] = offset.to_bytes(8), self._epoch.to_bytes(4)
        self._ever.setdefault(offset, set()).add(value)
        self._keys[offset] = b"follower %d" % offset
        with self._node():
            self.log.append_replicated(memoryview(data), [read_header(data, 0)], NOW_MS)
            self._appended[offset] = value

    def restart(self) -> None:
        """A clean stop, as far as it can be one, and a start."""
        if self.ended:
            return
        self.store.store.close()
        self.disk.restart()
        self.start()

    def start(self) -> None:
        """A node that cannot start is started again."""
        if self._is_replicated:
            self.store.committed = max(self.acknowledged, default=-1) + 1
        with suppress(OSError):
            self.store.open()
            self.ended = self.log.offline is not None
            self._appended = {}
            return
        self.ended = True

    # -- what must hold afterwards

    def check(self) -> None:
        """After a restart on a sound disk."""
        log = self.log
        assert log.offline is None, log.offline
        report = self.store.reports.get(log.directory)
        damages = report.damages if report is not None else []
        if not self.rotten:
            assert not damages
            assert not log.segments.damaged
        assert log.log_start_offset >= self._least_start
        found = self._readable()
        for offset, value in found.items():
            assert value in self._ever[offset], f"{value!r} was never at offset {offset}"
        for offset in set(self.acknowledged) - set(self.rotten):
            is_there = found.get(offset) == self.acknowledged[offset]
            assert is_there or self._is_superseded(offset, found), f"offset {offset} is lost: {sorted(found)}"

    def _is_superseded(self, offset: int, found: dict[int, bytes]) -> bool:
        return self.log.config.compacts and any(
            later > offset and self._keys[later] == self._keys[offset] for later in found
        )

    def _readable(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        log, at = self.log, self.log.log_start_offset
        while at < log.log_end_offset:
            try:
                data, following = log.read(at, 1, log.log_end_offset)
            except CorruptBatch:
                assert at in self.rotten, f"offset {at} cannot be read"
                following = self.rotten.stop
            else:
                found |= {record.offset: record.value or b"" for record in decode_records(data, 1 << 20)}
            at = following
        return {offset: value for offset, value in found.items() if offset >= log.log_start_offset}

    def go_on(self) -> None:
        """It can be used: what is written now is there after another kill, and after a clean stop."""
        self.ended, self._appended = False, {}
        self._epoch += 1
        for restart in (self.store.kill, self.store.stop_and_start):
            # No batch is alone in its epoch: recovery would not believe it.
            self.append(2)
            self.flush()
            assert not self.ended
            restart()
            self.check()


Story = Callable[[Teller], None]
SMALL = TopicConfig(segment_bytes=300, index_interval_bytes=100)
COMPACTED = TopicConfig(segment_bytes=300, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)


def appends_and_rolls(teller: Teller) -> None:
    teller.write(2)
    teller.append(6)
    teller.flush()
    teller.checkpoint()
    teller.append(3)


def its_start_moves(teller: Teller) -> None:
    teller.append(8)
    teller.flush()
    teller.delete_before(2)
    teller.checkpoint()
    teller.write(2)
    teller.delete_before(7)
    teller.append(2)
    teller.delete_before(10)
    teller.flush()


def its_end_is_cut(teller: Teller) -> None:
    teller.append(8)
    teller.flush()
    teller.checkpoint()
    teller.cut(5)
    teller.append(3)
    teller.cut(7)
    teller.write(1)
    teller.checkpoint()
    teller.append(2)
    teller.flush()


def it_begins_elsewhere(teller: Teller) -> None:
    teller.append(5)
    teller.flush()
    teller.checkpoint()
    teller.cut(20, is_given_up=True)
    teller.write(1)
    teller.cut(20)
    teller.append(4)
    teller.flush()
    teller.checkpoint()
    teller.cut(22)
    teller.write(1)


def it_is_compacted(teller: Teller) -> None:
    teller.append(9)
    teller.flush()
    teller.checkpoint()
    teller.compact()
    teller.append(6)
    teller.flush()
    teller.checkpoint()
    teller.compact()
    teller.write(1)


def a_cut_of_a_compacted_log_is_given_up(teller: Teller) -> None:
    teller.append(12)
    teller.flush()
    teller.checkpoint()
    teller.compact()
    teller.checkpoint()
    teller.cut(1, is_given_up=True)
    teller.append(6)
    teller.flush()
    teller.checkpoint()
    teller.compact()
    teller.write(1)


def it_is_repaired(teller: Teller) -> None:
    other = Teller(SMALL, 0, is_replicated=False)
    for each in (teller, other):
        each.append(9)
        each.flush()
    if teller.acknowledged != other.acknowledged or not teller.checkpoint():
        # Damage that no checkpoint tells from a torn end would be cut.
        return
    teller.rot(1)
    teller.repair(1, other.log)
    teller.write(1)
    teller.checkpoint()
    teller.write(1)


def its_topic_is_made_again(teller: Teller) -> None:
    teller.append(6)
    teller.flush()
    teller.checkpoint()
    teller.replace_topic()
    teller.append(4)
    teller.flush()
    teller.checkpoint()
    teller.write(1)


def its_node_restarts(teller: Teller) -> None:
    teller.append(6)
    teller.flush()
    teller.restart()
    teller.append(3)
    teller.flush()
    teller.disk.restart()
    teller.start()
    teller.append(1)
    teller.flush()
    teller.restart()


def it_follows_one_that_has_compacted(teller: Teller) -> None:
    teller.append(2)
    for _ in range(6):
        teller.follow_with_gaps()
    teller.flush()
    teller.checkpoint()
    teller.follow_with_gaps()
    teller.flush()
    teller.cut(9)
    teller.append(2)
    teller.flush()


STORIES: dict[str, tuple[Story, TopicConfig]] = {
    story.__name__: (story, config)
    for story, config in (
        (appends_and_rolls, SMALL),
        (its_start_moves, SMALL),
        (its_end_is_cut, SMALL),
        (it_begins_elsewhere, SMALL),
        (it_is_compacted, COMPACTED),
        (a_cut_of_a_compacted_log_is_given_up, COMPACTED),
        (it_is_repaired, SMALL),
        (its_topic_is_made_again, SMALL),
        (its_node_restarts, SMALL),
        (it_follows_one_that_has_compacted, SMALL),
    )
}

FULL_ONCE, FULL_FOR_LONG, BROKEN = (errno.ENOSPC, 1), (errno.ENOSPC, 1000), (errno.EIO, 1)
