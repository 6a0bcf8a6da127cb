"""Any history of appends, flushes, checkpoints, cuts, retention and compaction, stopped anywhere, is recovered from.

A model remembers every batch that was appended and how much of it was acknowledged as durable. The disk stops the
program at a drawn point, with or without a loss of power; recovery may be stopped as well. What is opened then must be
what the model says.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.config.topic import TopicConfig
from millstream.protocol.record_batch import BatchHeader, check_produced, read_header
from millstream.protocol.records import decode_records
from millstream.storage.log import PartitionLog
from millstream.testing.disk import Crashed, SimulatedDisk
from support.logs import Store, batch_of, compact, flush, offset_for_timestamp, read_batches, truncate_to

SMALL = {"segment_bytes": 700, "index_interval_bytes": 150}
TOPICS = {
    "durable": TopicConfig(**SMALL),
    "relaxed": TopicConfig(**SMALL, flush_messages=1_000_000),
    "compacted": TopicConfig(**SMALL, cleanup_policy=frozenset({"compact"})),
}
NO_LIMIT = 1 << 40
OPERATIONS = st.integers(0, 25)
ANY_TOPIC = st.sampled_from(sorted(TOPICS))


@dataclass(slots=True)
class Written:
    """A batch as it stands in the log."""

    header: BatchHeader
    data: bytes


@dataclass(slots=True)
class Model:
    batches: list[Written] = field(default_factory=list)
    end: int = 0
    acknowledged: int = 0
    least_start: int = 0
    """What was acknowledged as deleted."""
    cut_to: int | None = None
    """Where the end was being cut: any end from there on may be found."""

    def surviving(self, end: int) -> list[Written]:
        return [batch for batch in self.batches if batch.header.last_offset < end]


class CrashMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), journaled=st.booleans())
    def begin(self, seed: int, journaled: bool) -> None:
        self.store = Store(SimulatedDisk(seed, journaled=journaled), TOPICS)
        self.journaled = journaled
        self.models = {topic: Model() for topic in TOPICS}
        self.leader_epoch = 0
        self.sequences: dict[tuple[str, int], int] = {}
        self.scan_from = dict.fromkeys(TOPICS, 0)

    # -- what a node does

    @rule(topic=ANY_TOPIC, count=st.integers(1, 4), producer=st.integers(0, 3), size=st.integers(1, 150))
    def append(self, topic: str, count: int, producer: int, size: int) -> None:
        """Producer 0 is not idempotent; each of the others goes on where it stands in the log."""
        self.store.clock.advance(10)
        now_ms = self.store.clock.now_ms()
        values = [b"%d" % number * size for number in range(count)]
        stamps = (producer, 0, self.sequences.get((topic, producer), 0)) if producer else None
        key = b"key-%d" % (size % 5)
        view = memoryview(bytearray(batch_of(values, key=key, timestamp_ms=now_ms, producer=stamps)))
        appended = self.log(topic).append(view, check_produced(view, 9), self.leader_epoch, now_ms)
        assert not appended.duplicate
        model = self.models[topic]
        assert appended.base_offset == model.end
        header = read_header(view)
        model.batches.append(Written(header, bytes(view)))
        model.end = appended.last_offset + 1
        if producer:
            self.sequences[topic, producer] = header.last_sequence + 1

    @rule(topic=ANY_TOPIC)
    def flush(self, topic: str) -> None:
        self._flush(topic)

    def _flush(self, topic: str) -> None:
        model = self.models[topic]
        end = model.end
        flush(self.log(topic))
        model.acknowledged = max(model.acknowledged, end)

    @rule(topic=ANY_TOPIC)
    def roll(self, topic: str) -> None:
        if self.log(topic).segments:
            self.log(topic).roll(self.store.clock.now_ms())

    @rule()
    def checkpoint(self) -> None:
        self._checkpoint()

    def _checkpoint(self) -> None:
        scan_from = {topic: self.log(topic).flushed_position[0] for topic in TOPICS}
        self.store.checkpoint()
        self.scan_from = scan_from

    @rule(topic=st.sampled_from(["durable", "relaxed"]), share=st.floats(0, 1))
    def delete_records(self, topic: str, share: float) -> None:
        model, log = self.models[topic], self.log(topic)
        offset = int(log.log_start_offset + share * (model.acknowledged - log.log_start_offset))
        if offset > log.log_start_offset:
            log.advance_start(offset)
            self._flush(topic)
            model.least_start = offset

    @rule(topic=st.sampled_from(["durable", "relaxed"]), has_room=st.booleans())
    def expire_a_segment(self, topic: str, has_room: bool) -> None:
        self._expire_a_segment(topic, has_room)

    def _expire_a_segment(self, topic: str, has_room: bool) -> None:
        """Where the log begins afterwards is on disk first. Without room for that the segment goes all the same, which
        leaves the end of the log to a file system that keeps the order of names."""
        log = self.log(topic)
        if log.settled_count == 0:
            return
        if has_room or not self.journaled:
            start = log.segments[1].base_offset
            log.advance_start(start)
            self._flush(topic)
            self.models[topic].least_start = max(self.models[topic].least_start, start)
        for path in log.drop_segments(1):
            for suffix in (".log", ".index", ".timeindex"):
                if self.store.disk.exists(path + suffix):
                    self.store.disk.rename(path + suffix, path + suffix + ".deleted")
                    self.store.disk.unlink(path + suffix + ".deleted")

    @rule(topic=st.sampled_from(["durable", "relaxed"]), share=st.floats(0, 1))
    def truncate(self, topic: str, share: float) -> None:
        self._truncate(topic, share)

    def _truncate(self, topic: str, share: float) -> None:
        """As a follower whose leader has another history: what was written is synced, then the end is cut."""
        model, log = self.models[topic], self.log(topic)
        self._flush(topic)
        ends = [log.log_start_offset, *(each.header.last_offset + 1 for each in model.batches)]
        ends = [end for end in ends if end >= log.log_start_offset]
        target = ends[int(share * (len(ends) - 1))]
        model.acknowledged = model.cut_to = target
        self.scan_from[topic] = 0
        truncate_to(log, target, self.store.clock.now_ms())
        assert log.log_start_offset <= log.log_end_offset <= target
        assert log.flushed_offset == log.log_end_offset
        self.leader_epoch += 1
        self._forget_after(topic)

    def _forget_after(self, topic: str) -> None:
        model, log = self.models[topic], self.log(topic)
        model.batches = model.surviving(log.log_end_offset)
        model.end = model.acknowledged = log.log_end_offset
        model.cut_to = None
        for key in [key for key in self.sequences if key[0] == topic]:
            self.sequences[key] = self._last_sequences(model.batches).get(key[1], -1) + 1

    @rule()
    def compact(self) -> None:
        self._compact()

    def _compact(self) -> None:
        compact(self.log("compacted"), self.store.clock.now_ms())

    # -- how it ends

    @rule()
    def stop_cleanly(self) -> None:
        expected = {topic: read_batches(self.log(topic)) for topic in TOPICS}
        self.store.stop_and_start()
        assert self.store.store.was_clean
        assert self.store.reports == {}
        for topic, model in self.models.items():
            model.acknowledged = model.end
            model.least_start = self.log(topic).log_start_offset
            assert read_batches(self.log(topic)) == expected[topic]
        self.scan_from = {topic: self.log(topic).flushed_position[0] for topic in TOPICS}
        self.check_all(power_loss=False)

    @rule(power_loss=st.booleans(), during=st.lists(OPERATIONS, max_size=2))
    def crash_between_operations(self, power_loss: bool, during: list[int]) -> None:
        self._restart(power_loss, during)

    @rule(
        power_loss=st.booleans(),
        operations=OPERATIONS,
        during=st.lists(OPERATIONS, max_size=2),
        topic=ANY_TOPIC,
        action=st.sampled_from(["flush", "checkpoint", "compact", "expire", "truncate", "close"]),
    )
    def crash_inside(
        self, power_loss: bool, operations: int, during: list[int], topic: str, action: str
    ) -> None:
        work: dict[str, Callable[[], object]] = {
            "flush": lambda: self._flush(topic),
            "checkpoint": self._checkpoint,
            "compact": self._compact,
            "expire": lambda: self._expire_a_segment(topic, power_loss) if topic != "compacted" else None,
            "truncate": lambda: self._truncate(topic, 0.5) if topic != "compacted" else None,
            "close": self.store.store.close,
        }
        self.store.disk.crash_after(operations)
        with contextlib.suppress(Crashed):
            work[action]()
        self._restart(power_loss, during)

    def _restart(self, power_loss: bool, during: list[int]) -> None:
        disk = self.store.disk
        for operations in during:
            disk.restart(power_loss=power_loss)
            disk.crash_after(operations)
            try:
                self.store.open()
            except Crashed:
                continue
            break
        disk.restart(power_loss=power_loss)
        self.store.open()
        self.leader_epoch += 1
        self.check_all(power_loss)
        self._check_scanned()
        for topic, model in self.models.items():
            self._forget_after(topic)
            model.least_start = self.log(topic).log_start_offset

    # -- what must hold then

    def check_all(self, power_loss: bool) -> None:
        for topic, model in self.models.items():
            log = self.log(topic)
            assert log.offline is None
            assert self.store.reports.get(log.directory) is None or not self.store.report(topic).damages
            assert model.acknowledged <= log.log_end_offset <= model.end
            if not power_loss:
                assert log.log_end_offset in {model.end, model.end if model.cut_to is None else model.cut_to}
            assert log.log_start_offset >= model.least_start
            assert log.flushed_offset == log.log_end_offset
            self._check_records(topic, log, model)
            self._check_lookups(log)
            self._check_producers(log, model)
            self._check_epochs(log, model)

    def _check_records(self, topic: str, log: PartitionLog, model: Model) -> None:
        found = read_batches(log)
        written = {batch.header.base_offset: batch.data for batch in model.surviving(log.log_end_offset)}
        if topic != "compacted":
            kept = [data for base, data in sorted(written.items()) if self._end(data) > log.log_start_offset]
            assert [data for _, data in found] == kept
            return
        latest = {
            record.key: (record.offset, record.value)
            for data in written.values()
            for record in decode_records(data, NO_LIMIT)
        }
        seen = {
            record.key: (record.offset, record.value)
            for _, data in found
            for record in decode_records(data, NO_LIMIT)
        }
        assert seen == latest

    @staticmethod
    def _end(data: bytes) -> int:
        return read_header(data).last_offset + 1

    def _check_lookups(self, log: PartitionLog) -> None:
        found = read_batches(log)
        for offset in range(log.log_start_offset, log.log_end_offset):
            # Offsets that compaction took away lead to the next that is there.
            expected = next((data for header, data in found if header.last_offset >= offset), b"")
            assert bytes(log.read(offset, 1, log.log_end_offset).data) == expected
        for _, data in found:
            for record in decode_records(data, NO_LIMIT):
                if record.offset >= log.log_start_offset:
                    at = offset_for_timestamp(log, record.timestamp_ms)
                    assert at is not None
                    assert (at.timestamp, at.offset) <= (record.timestamp_ms, record.offset)

    def _check_producers(self, log: PartitionLog, model: Model) -> None:
        surviving = model.surviving(log.log_end_offset)
        kept = [batch for batch in surviving if batch.header.last_offset >= log.log_start_offset]
        for producer in {batch.header.producer_id for batch in kept} - {-1}:
            last = [batch for batch in surviving if batch.header.producer_id == producer][-1].header
            again = log.producers.check(last)
            assert again is not None
            assert (again.base_offset, again.last_offset) == (last.base_offset, last.last_offset)
            assert log.producers.check(last._replace(base_sequence=last.last_sequence + 1)) is None

    def _check_epochs(self, log: PartitionLog, model: Model) -> None:
        for batch in model.surviving(log.log_end_offset):
            if batch.header.base_offset >= log.log_start_offset:
                assert log.epochs.epoch_of(batch.header.base_offset) == batch.header.leader_epoch

    def _check_scanned(self) -> None:
        """Nothing is read that the last checkpoint knew to be sealed and synced."""
        for topic in ("durable", "relaxed"):
            report = self.store.reports.get(self.log(topic).directory)
            unknown = sum(
                len(batch.data)
                for batch in self.models[topic].batches
                if batch.header.base_offset >= self.scan_from[topic]
            )
            assert report is None or report.scanned_bytes <= unknown

    @staticmethod
    def _last_sequences(batches: list[Written]) -> dict[int, int]:
        return {batch.header.producer_id: batch.header.last_sequence for batch in batches}

    @invariant()
    def counters_equal_a_recount(self) -> None:
        for topic in self.models if hasattr(self, "models") else ():
            log = self.log(topic)
            sizes = [segment.file.size() for segment in log.segments]
            assert log.size_bytes == sum(sizes)
            counted = sum(header.record_count for segment in log.segments for _, header, _ in segment.scan())
            assert log.segments.record_count == counted

    def log(self, topic: str) -> PartitionLog:
        return self.store.log(topic)


TestCrashes = CrashMachine.TestCase
TestCrashes.settings = settings(
    max_examples=int(os.environ.get("MILLSTREAM_CRASH_EXAMPLES", "150")),
    stateful_step_count=40,
    phases=set(Phase) - {Phase.explain},
)


@pytest.mark.parametrize("operations", range(26))
def test_epochs_are_not_lost_before_the_start_of_the_log_has_moved(operations: int) -> None:
    """A flush wrote the epochs without those of a segment that was to go, and ended before it wrote the new start."""
    state = CrashMachine()
    state.begin(seed=0, journaled=False)
    for size in (76, 103):
        state.append("relaxed", count=3, producer=0, size=size)
    state.crash_between_operations(power_loss=False, during=[])
    state.append("relaxed", count=1, producer=0, size=1)
    state.crash_inside(power_loss=False, operations=operations, during=[], topic="relaxed", action="expire")


@pytest.mark.parametrize("operations", range(26))
def test_a_cut_end_does_not_come_back(operations: int) -> None:
    """The process ended within a cut; what recovery then found to end as written down had not been synced."""
    state = CrashMachine()
    state.begin(seed=1, journaled=True)
    state.checkpoint()
    for _ in range(2):
        state.append("durable", count=1, producer=0, size=1)
    state.flush("durable")
    state.checkpoint()
    state.crash_inside(power_loss=False, operations=operations, during=[], topic="durable", action="truncate")
    state.crash_between_operations(power_loss=True, during=[])
