"""Where a reset moves to in a partition."""

import pytest

from millstream.admin.resets import ResetTarget, TargetKind


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
