"""The bound on open segment files."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.config.topic import TopicConfig
from millstream.testing.disk import SimulatedDisk
from support.logs import Store, append_values, flush, new_log, read_values

SMALL = TopicConfig(segment_bytes=300)


def test_many_partitions_share_a_few_handles() -> None:
    topics = {f"t{number}": SMALL for number in range(20)}
    store = Store(topics=topics, max_open_files=5)
    for value in range(10):
        for topic in topics:
            append_values(store.log(topic), b"%d" % value)
            flush(store.log(topic))
            assert store.disk.open_handles == len(store.store.files) <= 5
    for topic in topics:
        assert read_values(store.log(topic)) == [b"%d" % value for value in range(10)]
        assert store.disk.open_handles <= 5


def test_a_segment_is_sealed_after_its_handle_was_given_to_others() -> None:
    """Its indexes have no entry, so they are in no file, and were forgotten with the handle."""
    topics = {f"t{number}": TopicConfig(segment_bytes=100) for number in range(4)}
    store = Store(topics=topics, max_open_files=2)
    for value in range(3):
        for topic in topics:
            append_values(store.log(topic), b"%d" % value)
            flush(store.log(topic))
    for topic in topics:
        assert read_values(store.log(topic)) == [b"0", b"1", b"2"]


def test_a_file_with_unsynced_bytes_stays_open_beyond_the_bound() -> None:
    """The kernel tells of a failed write-back only to handles that were open then."""
    topics = {f"t{number}": SMALL for number in range(10)}
    store = Store(topics=topics, max_open_files=3)
    for topic in topics:
        append_values(store.log(topic), b"a")
    assert store.disk.open_handles == 10
    for topic in topics:
        flush(store.log(topic))
    assert store.disk.open_handles == 3


def test_recovery_keeps_to_the_bound() -> None:
    topics = {f"t{number}": SMALL for number in range(20)}
    store = Store(topics=topics, max_open_files=5)
    for topic in topics:
        append_values(store.log(topic), b"a")
    store.kill()
    assert store.disk.open_handles <= 5
    for topic in topics:
        assert read_values(store.log(topic)) == [b"a"]


@given(steps=st.lists(st.tuples(st.sampled_from("arfd"), st.integers(0, 5)), max_size=60))
def test_handles_are_neither_leaked_nor_closed_too_early(steps: list[tuple[str, int]]) -> None:
    topics = {f"t{number}": SMALL for number in range(6)}
    store = Store(SimulatedDisk(), topics, max_open_files=4)
    expected: dict[str, list[bytes]] = {topic: [] for topic in topics}
    for step, number in steps:
        topic, log = f"t{number}", store.log(f"t{number}")
        match step:
            case "a":
                expected[topic].append(b"%d" % len(expected[topic]) * 20)
                append_values(log, expected[topic][-1])
            case "r":
                assert read_values(log) == expected[topic][log.log_start_offset :]
            case "f":
                flush(log)
            case "d" if log.settled_count:
                log.drop_segments(log.settled_count)
        assert store.disk.open_handles == len(store.store.files)
    for topic in topics:
        store.store.remove(topic, 0)
    assert store.disk.open_handles == len(store.store.files) == 0


def test_closing_a_log_closes_its_files() -> None:
    disk = SimulatedDisk()
    log = new_log(disk, segment_bytes=300)
    for _ in range(20):
        append_values(log, b"x" * 50)
    assert log.close()
    assert disk.open_handles == 0
