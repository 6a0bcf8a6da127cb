"""Rules of queues, each broken in one place. The simulator, or the model of a queue, must notice."""

from typing import Any

import pytest

from millstream.broker.shares.dead_letters import DeadLetterWriter
from millstream.broker.shares.queue_store import QueueStore
from millstream.coordinator.shares.endings import Endings
from millstream.coordinator.shares.ledger import Ledger
from millstream.coordinator.shares.runs import Run
from millstream.coordinator.shares.states import RecordState


def acknowledgements_not_stored(patch: pytest.MonkeyPatch) -> None:
    """A consumer hears that its message is done before anybody else knows."""

    async def forget(*_: Any) -> None:
        return

    patch.setattr(QueueStore, "write", forget)


def dead_letters_lost(patch: pytest.MonkeyPatch) -> None:
    """A message leaves its queue though its dead letter was not written."""

    async def drop(*_: Any) -> None:
        return

    patch.setattr(DeadLetterWriter, "_send", drop)


def locks_never_end(patch: pytest.MonkeyPatch) -> None:
    """What a consumer has forgotten stays its own."""
    release = Endings.release

    def keep(self: Endings, first: int, last: int, count: int, now_ms: int, delay_ms: int | None) -> None:
        if delay_ms is not None:
            release(self, first, last, count, now_ms, delay_ms)
        else:
            self._ledger.delay(first, last, now_ms + 1_000_000)

    patch.setattr(Endings, "release", keep)


def delivered_to_two_at_once(patch: pytest.MonkeyPatch) -> None:
    """What is out for delivery is handed out once more."""

    def ready(self: Ledger, run: Run) -> bool:
        return run.state is RecordState.ACQUIRED or (run.state is RecordState.AVAILABLE and run.due_ms == 0)

    patch.setattr(Ledger, "is_ready", ready)


BROKEN_IN_A_CLUSTER = {
    each.__name__: each
    for each in (acknowledgements_not_stored, dead_letters_lost, delivered_to_two_at_once, locks_never_end)
}
