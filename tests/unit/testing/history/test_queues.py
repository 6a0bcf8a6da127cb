from millstream.testing.history.operations import Kind
from millstream.testing.history.queues import Delivery, QueueEvent, QueueStep, judge_locks, judge_queue

PUT, DELIVERED, ACKED, DEAD = QueueStep.PUT, QueueStep.DELIVERED, QueueStep.ACKED, QueueStep.DEAD
SETTLED = QueueStep.SETTLED


def kinds(*steps: QueueStep, is_drained: bool = False) -> list[Kind]:
    events = [QueueEvent("q", "m", step, at) for at, step in enumerate(steps)]
    return [anomaly.kind for anomaly in judge_queue(events, is_drained=is_drained)]


def test_a_message_that_was_worked_on() -> None:
    assert kinds(PUT, DELIVERED, ACKED) == []
    assert kinds(PUT, DELIVERED, DELIVERED, ACKED) == []
    assert kinds(PUT, DELIVERED, DELIVERED, DEAD) == []


def test_a_message_that_nobody_got() -> None:
    assert kinds(PUT) == [Kind.NEVER_DELIVERED]


def test_a_message_that_came_again_after_its_acknowledgement() -> None:
    assert kinds(PUT, DELIVERED, ACKED, DELIVERED) == [Kind.DELIVERED_AFTER_ACK]
    assert kinds(PUT, DELIVERED, SETTLED, DELIVERED) == [Kind.DELIVERED_AFTER_ACK]


def test_a_message_in_both_queues() -> None:
    assert kinds(PUT, DELIVERED, DEAD, DELIVERED) == [Kind.IN_QUEUE_AND_DEAD]
    assert kinds(PUT, DELIVERED, ACKED, DEAD) == [Kind.IN_QUEUE_AND_DEAD]
    assert kinds(PUT, DELIVERED, DELIVERED, SETTLED, DEAD) == []


def test_what_is_neither_done_nor_dead_in_the_end_is_found_where_all_was_drained() -> None:
    assert kinds(PUT, DELIVERED) == []
    assert kinds(PUT, DELIVERED, is_drained=True) == [Kind.NEVER_SETTLED]
    for step in (ACKED, SETTLED, QueueStep.TRIED, DEAD):
        assert kinds(PUT, DELIVERED, step, is_drained=True) == []


def test_a_message_that_two_had_at_once() -> None:
    first = Delivery("q", "m", asked=1.0, received=2.0)
    assert list(judge_locks([first, Delivery("q", "m", 9.0, 11.1)], 10.0)) == []
    [found] = judge_locks([first, Delivery("q", "m", 9.0, 10.9)], 10.0)
    assert found.kind is Kind.DELIVERED_TO_TWO
    first.let_go = 3.0
    assert list(judge_locks([first, Delivery("q", "m", 2.5, 3.1), Delivery("q", "n", 1.0, 2.0)], 10.0)) == []
