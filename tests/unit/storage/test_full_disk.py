"""A disk without room: writes are refused, nothing is torn, reads go on, and it works again when there is room."""

import errno
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.testing.disk import Fault, Operation
from support.logs import RELAXED, Store, append_values, flush, read_values


def fill(store: Store, room_bytes: int) -> list[bytes]:
    """Append until the disk refuses; the values that were taken."""
    taken: list[bytes] = []
    store.disk.capacity_bytes = store.disk.used_bytes() + room_bytes

    def append_for_ever() -> None:
        for number in itertools.count():
            append_values(store.log(), b"%d" % number * 10)
            taken.append(b"%d" % number * 10)

    with pytest.raises(KafkaError, match="No space left on device") as raised:
        append_for_ever()
    assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    return taken


@given(room=st.integers(0, 3000), segment_bytes=st.sampled_from([300, 1 << 20]))
def test_a_write_without_room_is_refused_and_leaves_nothing_torn(room: int, segment_bytes: int) -> None:
    store = Store(topics={"t": TopicConfig(segment_bytes=segment_bytes, **RELAXED)})
    taken = fill(store, room)
    log = store.log()
    assert log.offline is None
    assert read_values(log) == taken
    for segment in log.segments:
        assert segment.file.size() == segment.summary.size_bytes
    store.disk.capacity_bytes = None
    append_values(log, b"there is room")
    flush(log)
    assert read_values(log) == [*taken, b"there is room"]
    store.lose_power()
    assert read_values(store.log()) == [*taken, b"there is room"]


@given(room=st.integers(0, 3000))
def test_a_kill_on_a_full_disk_loses_nothing_that_was_taken(room: int) -> None:
    store = Store(topics={"t": TopicConfig(segment_bytes=400)})
    taken = fill(store, room)
    store.kill()
    assert read_values(store.log()) == taken
    store.disk.capacity_bytes = None
    append_values(store.log(), b"there is room")
    flush(store.log())
    store.lose_power()
    assert read_values(store.log()) == [*taken, b"there is room"]


def test_an_idempotent_batch_that_was_refused_is_taken_when_it_is_sent_again() -> None:
    store = Store()
    append_values(store.log(), b"a", producer=(7, 0, 0))
    store.disk.capacity_bytes = store.disk.used_bytes()
    with pytest.raises(KafkaError):
        append_values(store.log(), b"b", producer=(7, 0, 1))
    store.disk.capacity_bytes = None
    assert not append_values(store.log(), b"b", producer=(7, 0, 1)).duplicate
    assert read_values(store.log()) == [b"a", b"b"]


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", [Operation.CREATE, Operation.WRITE, Operation.MAKE_DIRECTORY])
def test_other_shortages_pass_as_well(code: int, operation: Operation) -> None:
    store = Store()
    store.disk.faults.add(Fault(operation, code, path="*/t/*"))
    with pytest.raises(KafkaError):
        append_values(store.log(), b"refused")
    assert store.log().offline is None
    append_values(store.log(), b"taken")
    flush(store.log())
    store.lose_power()
    assert read_values(store.log()) == [b"taken"]


def test_a_write_that_fails_for_another_reason_takes_the_log_offline() -> None:
    store = Store()
    append_values(store.log(), b"a")
    flush(store.log())
    store.disk.faults.add(Fault(Operation.WRITE, errno.EIO, path="*.log"))
    with pytest.raises(KafkaError, match="Input/output error"):
        append_values(store.log(), b"b")
    with pytest.raises(KafkaError, match="Input/output error"):
        append_values(store.log(), b"c")
    store.kill()
    assert read_values(store.log()) == [b"a"]


def test_a_torn_write_that_cannot_be_taken_back_takes_the_log_offline() -> None:
    store = Store()
    append_values(store.log(), b"a")
    store.disk.capacity_bytes = store.disk.used_bytes() + 30
    store.disk.faults.add(Fault(Operation.TRUNCATE, errno.EIO, path="*.log"))
    with pytest.raises(KafkaError):
        append_values(store.log(), b"b" * 100)
    assert store.log().offline is not None
    store.disk.capacity_bytes = None
    store.kill()
    assert read_values(store.log()) == [b"a"]
