"""What a queue's consumer does with offsets that it is given and can do nothing with."""

from typing import Any

import pytest

from millstream.client import queue_consumer
from millstream.client.queue_consumer import QueueConsumer
from millstream.protocol.queue_call import QueueRange, SettledAll, SettleMessages, Taken, TakenFrom
from millstream.protocol.records import Record, encode_batch
from support.logs import unreadable

GAP, REJECT = 0, 3


def test_offsets_without_a_record_and_what_cannot_be_read_are_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a compacted topic, and of a batch that its producer packed wrongly."""
    compacted = encode_batch([Record(0, 1, None, b"a"), Record(2, 1, None, b"c")])
    broken = unreadable(encode_batch([Record(3, 1, None, b"d"), Record(4, 1, None, b"e")], base_offset=3))
    taken = Taken((TakenFrom(0, (QueueRange(0, 5, 1),), compacted + broken, 99),))
    settled: list[tuple[int, int, int]] = []

    def answer(_cluster: Any, _action: str, request: Any, _kind: Any) -> Any:
        if not isinstance(request, SettleMessages):
            return taken
        settled.extend((each.first, each.last, each.outcome) for each in request.ranges)
        return SettledAll(tuple((0, "") for _ in request.ranges))

    monkeypatch.setattr(queue_consumer, "ask_any", answer)
    consumer = QueueConsumer("t", "g")
    assert [each.value for each in consumer.receive(6)] == [b"a", b"c"]
    assert settled == [(3, 4, REJECT), (1, 1, GAP), (5, 5, GAP)]
