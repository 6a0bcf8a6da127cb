"""Share groups: every message is processed at least once, and not again after its acknowledgement is confirmed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from millstream.testing.history.operations import Anomaly, Kind


class QueueStep(StrEnum):
    PUT = "put"
    """The message's send was acknowledged."""
    DELIVERED = "delivered"
    ACKED = "acked"
    """The confirmation of its acknowledgement came."""
    SETTLED = "settled"
    """As ACKED, by a consumer whose lock may have ended: another may have settled the message before, in any way."""
    TRIED = "tried"
    """It was acknowledged, with unknown outcome."""
    DEAD = "dead"
    """It was found in the dead-letter queue."""


@dataclass(frozen=True, slots=True)
class QueueEvent:
    queue: str
    value: str
    step: QueueStep
    at: float


@dataclass(slots=True)
class Delivery:
    """A consumer holds a message, from some moment between `asked` and `received` on."""

    queue: str
    value: str
    asked: float
    received: float
    let_go: float = math.inf
    """When the consumer began to acknowledge or release it."""


def judge_locks(deliveries: Iterable[Delivery], lock_seconds: float) -> Iterator[Anomaly]:
    """No other consumer gets a message before its lock ends. For queues whose leaders stay: a new leader knows no
    locks.
    """
    locked_until: dict[tuple[str, str], float] = {}
    for each in sorted(deliveries, key=lambda delivery: delivery.received):
        message = (each.queue, each.value)
        before = locked_until.get(message, -math.inf)
        if each.received < before:
            yield Anomaly(Kind.DELIVERED_TO_TWO, each.queue, each.value)
        locked_until[message] = max(before, min(each.asked + lock_seconds, each.let_go))


def judge_queue(events: Sequence[QueueEvent], *, is_drained: bool = False) -> Iterator[Anomaly]:
    """`events` in order of time: deliveries at their request, confirmations at their arrival.

    If the queue was drained in the end and has dead letters, every message is done or dead.
    """
    steps: dict[tuple[str, str], list[QueueStep]] = {}
    for event in sorted(events, key=lambda each: each.at):
        steps.setdefault((event.queue, event.value), []).append(event.step)
    for (queue, value), seen in steps.items():
        if QueueStep.PUT in seen and QueueStep.DELIVERED not in seen and QueueStep.DEAD not in seen:
            yield Anomaly(Kind.NEVER_DELIVERED, queue, value)
        settled = {QueueStep.ACKED, QueueStep.SETTLED, QueueStep.TRIED, QueueStep.DEAD}
        if is_drained and QueueStep.PUT in seen and settled.isdisjoint(seen):
            yield Anomaly(Kind.NEVER_SETTLED, queue, value)
        confirmed = [seen.index(step) for step in (QueueStep.ACKED, QueueStep.SETTLED) if step in seen]
        if confirmed and QueueStep.DELIVERED in seen[min(confirmed) :]:
            yield Anomaly(Kind.DELIVERED_AFTER_ACK, queue, value)
        if QueueStep.DEAD in seen and (
            QueueStep.ACKED in seen or QueueStep.DELIVERED in seen[seen.index(QueueStep.DEAD) :]
        ):
            yield Anomaly(Kind.IN_QUEUE_AND_DEAD, queue, value)
