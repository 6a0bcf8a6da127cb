"""Converts Kafka's acknowledgements of a partition's records to settlements."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from millstream.coordinator.shares.queue_values import Outcome, Settlement
from millstream.protocol.errors import ErrorCode, KafkaError

# As many records as a group may have locked in a partition (share.partition.max.record.locks).
MOST_OUTCOMES = 10_000
_ACCEPTED = (Outcome.ACCEPT.value,)


class AcknowledgementBatch(Protocol):
    @property
    def first_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def acknowledge_types(self) -> tuple[int, ...]: ...


def settlements(batches: Sequence[AcknowledgementBatch], *, renewing: bool) -> Sequence[Settlement]:
    """KafkaError INVALID_REQUEST for an invalid acknowledgement; `renewing` allows renewals."""
    if len(batches) == 1:
        (batch,) = batches
        if batch.acknowledge_types == _ACCEPTED and 0 <= batch.first_offset <= batch.last_offset:
            # The usual case.
            return (Settlement(batch.first_offset, batch.last_offset, Outcome.ACCEPT),)
    if outcomes_in(batches) > MOST_OUTCOMES:
        raise _invalid(f"a request has at most {MOST_OUTCOMES} outcomes for a partition")
    return [each for batch in batches for each in _of_batch(batch, renewing)]


def outcomes_in(batches: Iterable[AcknowledgementBatch]) -> int:
    return sum(len(each.acknowledge_types) or 1 for each in batches)


def _of_batch(batch: AcknowledgementBatch, renewing: bool) -> Iterator[Settlement]:
    first, types = batch.first_offset, batch.acknowledge_types
    length = batch.last_offset - first + 1
    if length <= 0 or first < 0:
        raise _invalid(f"offsets {first} to {batch.last_offset} are no range")
    if len(types) not in (1, length):
        raise _invalid(f"{len(types)} types for {length} offsets: give one, or one for each")
    if len(types) == 1:
        yield Settlement(first, batch.last_offset, _outcome(types[0], renewing))
        return
    for number, group in groupby(types):
        count = len(list(group))
        yield Settlement(first, first + count - 1, _outcome(number, renewing))
        first += count


def _outcome(number: int, renewing: bool) -> Outcome:
    known = 0 <= number <= Outcome.RENEW and (renewing or number != Outcome.RENEW)
    if not known:
        raise _invalid(f"acknowledgement of type {number}")
    return Outcome(number)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
