from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.broker.partitions.appends import HARMLESS_AFTER_MS, Appends, ProducerBounds
from millstream.broker.partitions.partition import Partition
from millstream.broker.partitions.registry import Partitions
from millstream.config.settings import PerformanceSettings
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader, check_produced
from millstream.storage.producer_state import ProducerStates
from support.logs import TOPIC_ID, batch_of, new_log

NOW_MS = 1_700_000_000_000


def batch(producer_id: int) -> BatchHeader:
    fields: dict[str, Any] = dict.fromkeys(BatchHeader._fields, 0)
    return BatchHeader(**{**fields, "producer_id": producer_id, "record_count": 1})


def writes(bounds: ProducerBounds, states: ProducerStates, producer_id: int, now_ms: int) -> None:
    bounds.admit(states, producer_id, now_ms)
    states.update(batch(producer_id), 0, now_ms)


def test_producers_are_admitted_up_to_the_limit_of_their_partition() -> None:
    bounds = ProducerBounds(PerformanceSettings(max_producers_per_partition=3))
    states = ProducerStates()
    for producer_id in range(3):
        writes(bounds, states, producer_id, NOW_MS)
    writes(bounds, states, 1, NOW_MS)
    with pytest.raises(KafkaError, match="max_producers_per_partition") as refusal:
        bounds.admit(states, 9, NOW_MS)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (bounds.count, bounds.refused) == (3, 1)
    writes(bounds, ProducerStates(), 9, NOW_MS)


def test_the_longest_idle_makes_room_when_its_loss_is_harmless() -> None:
    bounds = ProducerBounds(PerformanceSettings(max_producers_per_partition=2))
    states = ProducerStates()
    writes(bounds, states, 1, NOW_MS)
    writes(bounds, states, 2, NOW_MS + 1)
    writes(bounds, states, 1, NOW_MS + HARMLESS_AFTER_MS)
    writes(bounds, states, 3, NOW_MS + HARMLESS_AFTER_MS + 2)
    assert [each in states for each in (1, 2, 3)] == [True, False, True]
    assert bounds.evicted == 1
    with pytest.raises(KafkaError):
        bounds.admit(states, 4, NOW_MS + HARMLESS_AFTER_MS + 2)


def test_the_node_has_a_limit_over_all_partitions() -> None:
    bounds = ProducerBounds(PerformanceSettings(max_producers=5))
    for producer_id in range(5):
        writes(bounds, ProducerStates(), producer_id, NOW_MS)
    with pytest.raises(KafkaError, match=r"performance\.max_producers"):
        bounds.admit(ProducerStates(), 5, NOW_MS)
    bounds.count = 4
    bounds.admit(ProducerStates(), 5, NOW_MS)


def test_records_of_no_producer_need_no_room() -> None:
    bounds = ProducerBounds(PerformanceSettings(max_producers=1, max_producers_per_partition=1))
    states = ProducerStates()
    writes(bounds, states, 1, NOW_MS)
    bounds.admit(states, -1, NOW_MS)


class Leading:
    """A partition, and clients' batches of one record to it."""

    def __init__(self) -> None:
        flushes = SimpleNamespace(flush_soon=lambda _: None)
        self.partition = Partition("t", 0, TOPIC_ID, new_log(), 0, cast(Any, flushes))
        partitions = Partitions()
        partitions.add(self.partition)
        self._appends = Appends(
            partitions,
            ProducerBounds(PerformanceSettings()),
            cast(Any, SimpleNamespace(now_ms=lambda: NOW_MS)),
            cast(Any, SimpleNamespace(count=lambda *_: None)),
            cast(Any, None),
        )

    def sends(self, sequence: int) -> int | ErrorCode:
        """The batch's offset, or why it was refused."""
        view = memoryview(bytearray(batch_of([b"x"], producer=(7, 0, sequence))))
        try:
            partition = self._appends.find("t", 0)
            return self._appends.append(partition, view, check_produced(view, 9), by_all=True).base_offset
        except KafkaError as error:
            return error.code


def test_what_was_sent_behind_a_batch_that_came_before_its_leader_was_elected_comes_after_it() -> None:
    """A gap would make librdkafka begin a new epoch and send again what is in the log."""
    led = Leading()
    assert led.sends(0) == 0
    led.partition.follow(2, 1)
    assert led.sends(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    led.partition.lead(2, None)
    assert led.sends(2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [led.sends(sequence) for sequence in range(3)] == [0, 1, 2]
