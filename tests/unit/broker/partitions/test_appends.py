from typing import Any

import pytest

from millstream.broker.partitions.appends import HARMLESS_AFTER_MS, ProducerBounds
from millstream.config.settings import PerformanceSettings
from millstream.protocol.errors import ErrorCode, KafkaError
from millstream.protocol.record_batch import BatchHeader
from millstream.storage.producer_state import ProducerStates

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
