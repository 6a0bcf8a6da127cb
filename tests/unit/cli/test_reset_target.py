import pytest

from millstream.cli.errors import UsageError
from millstream.cli.reset_target import ResetTarget, TargetKind, parse_target, parse_topics

NOW_MS = 1_700_000_000_000
NOTHING: dict[str, object] = {
    "to_earliest": False,
    "to_latest": False,
    "to_offset": None,
    "to_datetime": None,
    "by_duration": None,
    "shift_by": None,
    "now_ms": NOW_MS,
}


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"to_earliest": True}, ResetTarget(TargetKind.EARLIEST)),
        ({"to_latest": True}, ResetTarget(TargetKind.LATEST)),
        ({"to_offset": 0}, ResetTarget(TargetKind.OFFSET, 0)),
        ({"to_datetime": "2023-11-14T22:13:20Z"}, ResetTarget(TargetKind.TIMESTAMP, NOW_MS)),
        ({"to_datetime": "2023-11-14T23:13:20+01:00"}, ResetTarget(TargetKind.TIMESTAMP, NOW_MS)),
        ({"to_datetime": "2023-11-14T22:13:20"}, ResetTarget(TargetKind.TIMESTAMP, NOW_MS)),
        ({"by_duration": "2h"}, ResetTarget(TargetKind.TIMESTAMP, NOW_MS - 7_200_000)),
        ({"by_duration": "10000w"}, ResetTarget(TargetKind.TIMESTAMP, 0)),
        ({"to_datetime": "1901-01-01"}, ResetTarget(TargetKind.TIMESTAMP, 0)),
        ({"shift_by": -3}, ResetTarget(TargetKind.SHIFT, -3)),
    ],
)
def test_every_target_is_understood(option: dict[str, object], expected: ResetTarget) -> None:
    assert parse_target(**{**NOTHING, **option}) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"to_earliest": True, "to_latest": True}, "exactly one"),
        ({"to_offset": 0, "shift_by": 1}, "exactly one"),
        ({"to_datetime": "yesterday"}, "--to-datetime 'yesterday'"),
        ({"by_duration": "2"}, "--by-duration"),
        ({"by_duration": "unlimited"}, "--by-duration"),
        ({"by_duration": "-2h"}, "--by-duration"),
    ],
)
def test_no_target_or_several_or_a_wrong_one_is_wrong_usage(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_target(**{**NOTHING, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ResetTarget(TargetKind.EARLIEST), 10),
        (ResetTarget(TargetKind.LATEST), 20),
        (ResetTarget(TargetKind.OFFSET, 12), 12),
        (ResetTarget(TargetKind.OFFSET, 3), 10),
        (ResetTarget(TargetKind.OFFSET, 99), 20),
        (ResetTarget(TargetKind.SHIFT, -2), 13),
        (ResetTarget(TargetKind.SHIFT, -7), 10),
        (ResetTarget(TargetKind.SHIFT, 100), 20),
        (ResetTarget(TargetKind.TIMESTAMP, 5), 17),
    ],
)
def test_a_target_stays_within_the_partition(target: ResetTarget, expected: int) -> None:
    assert target.offset_in(10, 20, committed=15, by_time=17) == expected


def test_a_time_after_the_last_message_is_the_end() -> None:
    assert ResetTarget(TargetKind.TIMESTAMP, 5).offset_in(10, 20, committed=None, by_time=None) == 20


def test_what_was_never_committed_cannot_be_shifted() -> None:
    assert ResetTarget(TargetKind.SHIFT, 1).offset_in(10, 20, committed=None, by_time=None) is None


def test_topics_are_whole_or_in_part_and_add_up() -> None:
    assert parse_topics(["a", "b:0,2", "b:5", "c:1", "c", "c:3"]) == {
        "a": None,
        "b": frozenset({0, 2, 5}),
        "c": None,
    }


@pytest.mark.parametrize("word", ["", ":1", "a:", "a:x", "a:1,,2", "a:-1"])
def test_anything_else_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="TOPIC:0,1,2"):
        parse_topics([word])
