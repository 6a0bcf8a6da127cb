"""Lines that come again and again are written once in a while; a condition is told when it begins and when it ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.observability import logs
from millstream.observability.logs import get_logger
from millstream.observability.repeats import Condition, LogThrottle


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    lines: list[tuple[str, dict[str, Any]]] = []
    logs.redirect(lambda _level, event, fields: lines.append((event, fields)), "info")
    yield lines
    logs.redirect(None)


def test_a_condition_is_told_when_it_begins_once_a_minute_and_when_it_ends(
    told: list[tuple[str, dict[str, Any]]],
) -> None:
    now = 100.0
    silence = Condition(get_logger("test"), lambda: now, "no heartbeat", "heartbeat again")
    silence.ended()
    for _ in range(250):
        silence.lasts(error="the controller does not answer")
        now += 0.5
    silence.ended()
    silence.ended()
    silence.lasts(error="there is no controller")

    assert [(event, fields["seconds"]) for event, fields in told] == [
        ("no heartbeat", 0.0),
        ("no heartbeat", 60.0),
        ("no heartbeat", 120.0),
        ("heartbeat again", 125.0),
        ("no heartbeat", 0.0),
    ]


def test_each_kind_of_line_is_due_once_in_so_many_seconds() -> None:
    now = 0.0
    throttle: LogThrottle[str] = LogThrottle(lambda: now, 10.0)
    due = []
    for _ in range(25):
        due.append((throttle.is_due("a"), throttle.is_due("b")))
        now += 1.0
    assert [at for at, (a, _) in enumerate(due) if a] == [0, 10, 20]
    assert all(a == b for a, b in due)


def test_what_is_remembered_of_lines_is_bounded() -> None:
    throttle: LogThrottle[int] = LogThrottle(lambda: 0.0)
    assert all(throttle.is_due(number) for number in range(5000))
    assert len(throttle._counts) <= 1000


def test_lines_beyond_the_most_are_counted_by_their_kind() -> None:
    throttle: LogThrottle[str] = LogThrottle(lambda: 0.0, most=3)
    assert [throttle.is_due("a") for _ in range(5)] == [True, True, True, False, False]
    assert throttle.is_due("b")

    assert throttle.take_left_out() == {"a": 2}
    assert throttle.is_due("a")
    assert throttle.take_left_out() == {}
