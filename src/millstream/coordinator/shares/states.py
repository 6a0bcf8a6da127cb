"""The states of a record in a queue, and stretches of records that share one."""

import enum
from typing import Annotated, Final

import msgspec

from millstream.protocol.layout import INT8, Field, Int16, Int64, mapped

_DUE_TAG = 10_000


class RecordState(enum.IntEnum):
    """Kafka's numbers, which are in the log.

    AVAILABLE -> ACQUIRED -> AVAILABLE (released, lock ended), ACKNOWLEDGED, ARCHIVED (given up, deleted, expired),
    or ARCHIVING -> ARCHIVED where a dead letter is written first.
    """

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        return self is RecordState.ACKNOWLEDGED or self is RecordState.ARCHIVED


class StateBatch(msgspec.Struct, frozen=True):
    """A stretch of records as it is stored; a record that is out for delivery is stored as available, with its count.

    `due_ms` is our own addition: not to be delivered again before then.
    """

    first: Int64
    last: Int64
    state: Annotated[RecordState, mapped(INT8, int, RecordState)]
    count: Int16
    due_ms: Annotated[Int64, Field(tag=_DUE_TAG)] = 0


# A stored state is never undone: of two reports the one that is further along counts, in whichever order they come.
_STAGES: Final = {
    RecordState.AVAILABLE: 0,
    RecordState.ACQUIRED: 0,
    RecordState.ARCHIVING: 1,
    RecordState.ACKNOWLEDGED: 2,
    RecordState.ARCHIVED: 2,
}


def follows(state: RecordState, count: int, former: RecordState, former_count: int) -> bool:
    """Whether a report supersedes the known state; a final state stays.

    A delivery that never reached its consumer is taken back, so a count may be one less than before.
    """
    stage, known = _STAGES[state], _STAGES[former]
    return stage > known or (stage == known and not former.is_final and count >= former_count - 1)
