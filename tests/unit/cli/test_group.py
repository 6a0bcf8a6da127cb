import pytest

from millstream.admin.resets import ResetTarget, TargetKind
from millstream.cli.errors import UsageError
from millstream.cli.group import parse_target

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
