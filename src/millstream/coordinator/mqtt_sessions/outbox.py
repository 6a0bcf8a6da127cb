"""Messages that wait to be appended: submitted in order, a few at a time for each partition.

After a restart, messages are submitted again, one by one: the partition detects duplicates by sequence number, but
detects several in one batch only if that same batch was appended before.
"""

from collections.abc import Iterable

from millstream.coordinator.mqtt_sessions.requests import (
    AppendPending,
    NeedProducer,
    PendingMessage,
    SessionEffect,
)
from millstream.coordinator.mqtt_sessions.state import Place, SessionState

# The memory of a pending message beside its value.
_OVERHEAD_BYTES = 200


class Outbox:
    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._asked_for_producer = False
        self._queue: dict[Place, list[int]] = {}
        self._under_way: dict[Place, set[int]] = {}
        self._sizes: dict[int, int] = {}
        self._last = 0
        self._last_loaded = 0
        self.waiting_bytes = 0
        self.finished: set[int] = set()
        """Appended messages that are still pending in the coordinator's log: a successor would submit them again."""

    def load(self, state: SessionState) -> None:
        for number in sorted(state.pending):
            self._add(state, number)
        self._last = self._last_loaded = state.last_pending_number

    def effects(self, state: SessionState) -> list[SessionEffect]:
        """The next appends; none for a partition that has one under way."""
        for number in range(self._last + 1, state.last_pending_number + 1):
            self._add(state, number)
        self._last = state.last_pending_number
        if not self._queue:
            return []
        producer = state.producer
        if producer is None:
            if self._asked_for_producer:
                return []
            self._asked_for_producer = True
            return [NeedProducer()]
        effects: list[SessionEffect] = []
        for place in [place for place in self._queue if place not in self._under_way]:
            numbers = self._take(place)
            self._under_way[place] = set(numbers)
            messages = tuple(
                PendingMessage(each, state.pending[each].message, state.pending[each].sequence)
                for each in numbers
            )
            effects.append(AppendPending(producer.producer_id, state.sequences[place].epoch, messages))
        return effects

    def appended(self, numbers: tuple[int, ...]) -> None:
        self.finished.update(numbers)
        for number in numbers:
            self.waiting_bytes -= self._sizes.pop(number, 0)
        for place, under_way in list(self._under_way.items()):
            under_way.difference_update(numbers)
            if not under_way:
                del self._under_way[place]

    def refused(self, number: int) -> None:
        """Drop this message; those submitted with it are submitted again."""
        self.waiting_bytes -= self._sizes.pop(number, 0)
        for place, under_way in list(self._under_way.items()):
            if number in under_way:
                del self._under_way[place]
                again = sorted(under_way - {number})
                if again:
                    self._queue[place] = again + self._queue.get(place, [])

    def _add(self, state: SessionState, number: int) -> None:
        pending = state.pending.get(number)
        if pending is not None:
            message = pending.message
            self._queue.setdefault((message.topic, message.partition), []).append(number)
            self._sizes[number] = len(message.value or b"") + _OVERHEAD_BYTES
            self.waiting_bytes += self._sizes[number]

    def _take(self, place: Place) -> list[int]:
        waiting = self._queue[place]
        count = 1 if waiting[0] <= self._last_loaded else self._at_once
        numbers, rest = waiting[:count], waiting[count:]
        if rest:
            self._queue[place] = rest
        else:
            del self._queue[place]
        return numbers


class Releases:
    """Publishers that wait for PUBCOMP, by request token: it is sent once their messages are in the log."""

    def __init__(self) -> None:
        self._unappended_counts: dict[int, int] = {}
        self._waiting: dict[int, list[int]] = {}

    def wait(self, token: int, numbers: set[int]) -> None:
        self._unappended_counts[token] = len(numbers)
        for number in numbers:
            self._waiting.setdefault(number, []).append(token)

    def settled(self, numbers: Iterable[int]) -> list[int]:
        """These messages were appended, or never will be; returns the tokens that wait for nothing more."""
        free = []
        for number in numbers:
            for token in self._waiting.pop(number, ()):
                left = self._unappended_counts.get(token, 0)
                if left == 1:
                    del self._unappended_counts[token]
                    free.append(token)
                elif left:
                    self._unappended_counts[token] = left - 1
        return free

    def give_up(self, token: int) -> bool:
        """Stop waiting; False if the token was not waiting."""
        return self._unappended_counts.pop(token, None) is not None
