from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.raft.progress import Inflight, Pace, Progress


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50)), max_size=40))
def test_bytes_in_flight_are_those_without_an_answer(steps: list[tuple[bool, int]]) -> None:
    inflight, model, last = Inflight(4, 100), [], 0
    for is_send, number in steps:
        if is_send and not inflight.is_full:
            last += 1
            inflight.add(last, number)
            model.append((last, number))
        elif not is_send:
            inflight.free_to(number)
            model = [(index, size) for index, size in model if index > number]
        assert inflight.size_bytes == sum(size for _, size in model)
        assert inflight.is_full == (len(model) >= 4 or inflight.size_bytes >= 100)


def test_a_probe_waits_for_its_answer() -> None:
    progress = Progress(5, 4, 100)
    progress.sent(1, 5, 10)
    assert progress.is_paused
    assert progress.acknowledge(5)
    progress.replicate()
    assert (progress.pace, progress.next_index, progress.is_paused) == (Pace.REPLICATE, 6, False)


def test_streaming_pauses_when_enough_is_in_flight() -> None:
    progress = Progress(1, 2, 100)
    progress.replicate()
    progress.sent(1, 1, 10)
    assert not progress.is_paused
    progress.sent(1, 2, 10)
    assert progress.is_paused


def test_a_rejection_while_streaming_goes_back_to_what_is_known() -> None:
    progress = Progress(1, 4, 100)
    progress.acknowledge(3)
    progress.replicate()
    progress.sent(2, 5, 10)
    assert not progress.step_back(3, 0), "a late rejection of something acknowledged since"
    assert progress.step_back(5, 4)
    assert (progress.pace, progress.next_index, progress.inflight.size_bytes) == (Pace.PROBE, 4, 0)


def test_a_probe_jumps_to_the_hint_but_never_below_the_match() -> None:
    progress = Progress(10, 4, 100)
    assert not progress.step_back(7, 3), "the answer to an earlier probe"
    assert progress.step_back(9, 3)
    assert progress.next_index == 4
    progress.acknowledge(2)
    assert progress.step_back(3, 0)
    assert progress.next_index == 3


def test_a_probe_goes_below_the_match_of_a_follower_that_lost_it() -> None:
    progress = Progress(1, 4, 100)
    progress.acknowledge(9)
    progress.probe()
    assert progress.step_back(9, 4)
    assert (progress.match_index, progress.next_index) == (0, 5)
