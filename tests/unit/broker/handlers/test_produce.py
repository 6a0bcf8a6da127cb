"""When a produce request is answered."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.handlers.produce import DelayedProduce
from millstream.broker.partitions.partition import Partition
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.produce import PartitionOutcome
from millstream.protocol.record_batch import check_produced
from support.logs import NOW_MS, TOPIC_ID, batch_of, new_log


class Answered:
    """Stands for the connection, the timers and the counters of errors."""

    def __init__(self) -> None:
        self.outcomes: list[PartitionOutcome] | None = None
        self.produces = 0

    def reply_later(self) -> "Answered":
        return self

    def later(self, _seconds: float, _timed_out: object) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def answer(self, outcomes: list[PartitionOutcome]) -> None:
        self.outcomes = outcomes

    def fail(self, _call: object, outcome: PartitionOutcome, error: KafkaError) -> None:
        outcome.error = error.code


@pytest.mark.parametrize("fails", [False, True])
def test_a_partition_that_is_named_twice_is_acknowledged_when_both_batches_are_durable(fails: bool) -> None:
    partition = Partition(
        "t", 0, TOPIC_ID, new_log(), 0, cast(Any, SimpleNamespace(flush_soon=lambda _: None))
    )
    outcomes = [PartitionOutcome("t", 0), PartitionOutcome("t", 0)]
    answered = Answered()
    waiting = DelayedProduce(cast(Any, answered), cast(Any, answered), cast(Any, answered), outcomes)
    for outcome in outcomes:
        view = memoryview(bytearray(batch_of([b"a"])))
        appended = partition.append(view, check_produced(view, 9), NOW_MS)
        waiting.wait_for(partition, appended.last_offset, outcome, by_all=True)
    waiting.start_timer(1000)
    partition.flushed(1, 1)
    assert answered.outcomes is None
    if fails:
        partition.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert ErrorCode.NOT_LEADER_OR_FOLLOWER in [each.error for each in outcomes]
    else:
        partition.flushed(2, 2)
        assert [each.error for each in outcomes] == [ErrorCode.NONE] * 2
    assert answered.outcomes is outcomes
