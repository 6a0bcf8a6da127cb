"""ListOffsets: what ends with its client."""

import asyncio
from types import SimpleNamespace
from typing import Any

from millstream.broker.handlers.list_offsets import handle
from millstream.protocol.errors import ErrorCode, KafkaError


class Call:
    is_abandoned = False

    def count_error(self, code: ErrorCode) -> None: ...


class Partitions:
    """Their client leaves while the second is looked for."""

    def __init__(self, call: Call) -> None:
        self.asked: list[int] = []
        self._call = call

    def find_for_client(self, topic: str, index: int) -> Any:
        self.asked.append(index)
        self._call.is_abandoned = len(self.asked) == 2
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)


def test_nothing_is_looked_up_for_a_client_that_has_gone() -> None:
    call: Any = Call()
    partitions: Any = Partitions(call)
    none: Any = None
    wanted = [
        SimpleNamespace(partition_index=index, current_leader_epoch=-1, timestamp=1_700_000_000_000)
        for index in range(5)
    ]
    request: Any = SimpleNamespace(isolation_level=0, topics=[SimpleNamespace(name="t", partitions=wanted)])
    asyncio.run(handle(partitions, none, none, request, call))
    assert partitions.asked == [0, 1]
