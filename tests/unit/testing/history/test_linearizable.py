from math import inf

import pytest

from millstream.testing.history.linearizable import Call, is_linearizable
from millstream.testing.history.topics import TopicCall, TopicRequest, judge_topics

Request = tuple[str, int | None]


def register(state: int, request: Request) -> tuple[int, int | None]:
    kind, value = request
    if kind == "write":
        assert value is not None
        return value, 0
    return state, state


def write(value: int, start: float, end: float = inf) -> Call[Request, int | None]:
    return Call(("write", value), None if end == inf else 0, start, end)


def read(value: int, start: float, end: float) -> Call[Request, int | None]:
    return Call(("read", None), value, start, end)


GOOD = {
    "nothing": [],
    "one after the other": [write(1, 0, 1), read(1, 2, 3)],
    "a read beside a write may see either": [write(1, 0, 5), read(7, 1, 2), read(1, 3, 4)],
    "a write without an answer may have happened": [write(1, 0), read(1, 1, 2)],
    "or not": [write(1, 0), read(7, 1, 2)],
    "or late": [write(1, 0), read(7, 1, 2), read(1, 3, 4)],
    "two writes in either order": [write(1, 0, 5), write(2, 0, 5), read(2, 6, 7)],
}
BAD = {
    "a stale read": [write(1, 0, 1), read(7, 2, 3)],
    "a value from nowhere": [read(3, 0, 1)],
    "back and forth": [write(1, 0, 9), read(1, 1, 2), read(7, 3, 4)],
    "two readers, two orders": [
        write(1, 0, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7),
    ],
    "a write that happened and unhappened": [write(1, 0), read(1, 1, 2), read(7, 3, 4)],
}  # fmt: skip


@pytest.mark.parametrize("calls", GOOD.values(), ids=GOOD)
def test_accepted(calls: list[Call[Request, int | None]]) -> None:
    assert is_linearizable(calls, 7, register)


@pytest.mark.parametrize("calls", BAD.values(), ids=BAD)
def test_rejected(calls: list[Call[Request, int | None]]) -> None:
    assert not is_linearizable(calls, 7, register)


def test_many_calls_at_once_take_no_time_that_matters() -> None:
    calls = [write(number % 3, 0) for number in range(12)] + [write(2, 0, 1), read(2, 2, 3)]
    assert is_linearizable(calls, 7, register)


CREATE, DELETE = TopicRequest.CREATE, TopicRequest.DELETE


def test_topics_that_are_created_once_and_deleted_once() -> None:
    calls = [
        TopicCall("t", CREATE, False, 0, 1),
        TopicCall("t", CREATE, True, 2, 3),
        TopicCall("t", DELETE, None, 4, inf),
        TopicCall("t", CREATE, False, 5, 6),
    ]
    assert judge_topics(calls) == []


def test_a_topic_that_two_created() -> None:
    calls = [TopicCall("t", CREATE, False, 0, 1), TopicCall("t", CREATE, False, 2, 3)]
    assert len(judge_topics(calls)) == 1


def test_a_topic_that_was_lost() -> None:
    calls = [TopicCall("t", CREATE, False, 0, 1), TopicCall("t", DELETE, False, 2, 3)]
    assert len(judge_topics(calls)) == 1
    assert len(judge_topics([*calls, TopicCall("u", CREATE, False, 0, 1)])) == 1
