"""The logs as all clients together saw them."""

from collections import defaultdict
from dataclasses import dataclass, field

from millstream.testing.history.operations import History, Outcome, Poll, Seen, Send


@dataclass(slots=True)
class ObservedLog:
    """The values of one key seen at each offset, in successful sends and in all polls."""

    values: dict[int, dict[str, None]] = field(default_factory=dict)
    offsets: dict[str, dict[int, None]] = field(default_factory=dict)
    read: dict[str, None] = field(default_factory=dict)
    highest_read: int = -1
    index: dict[int, int] = field(default_factory=dict)
    """Offset to place in the dense order of used offsets; gaps between offsets are legal."""
    places: list[int] = field(default_factory=list)
    """Place to offset."""

    def note(self, offset: int, value: str) -> None:
        self.values.setdefault(offset, {})[value] = None
        self.offsets.setdefault(value, {})[offset] = None


class Observed:
    def __init__(self, history: History) -> None:
        self.history = history
        self.logs: defaultdict[str, ObservedLog] = defaultdict(ObservedLog)
        self.transactions = {each.name: each.outcome for each in history.transactions}
        for send in history.sends:
            if send.offset is not None and self.is_acknowledged(send):
                self.logs[send.key].note(send.offset, send.value)
        for _, seen in self.reads():
            log = self.logs[seen.key]
            log.note(seen.offset, seen.value)
            log.read[seen.value] = None
            log.highest_read = max(log.highest_read, seen.offset)
        for log in self.logs.values():
            log.places = sorted(log.values)
            log.index = {offset: place for place, offset in enumerate(log.places)}

    def is_acknowledged(self, send: Send) -> bool:
        """The send, and the transaction it was in, definitely happened."""
        return send.outcome is Outcome.OK and self._fate(send) is Outcome.OK

    def is_refused(self, send: Send) -> bool:
        """The send definitely did not happen, so no reader may see it."""
        return Outcome.FAILED in (send.outcome, self._fate(send))

    def _fate(self, send: Send) -> Outcome:
        if send.transaction is None:
            return Outcome.OK
        return self.transactions.get(send.transaction, Outcome.UNKNOWN)

    def reads(self) -> list[tuple[Poll, Seen]]:
        return [(poll, seen) for poll in self.history.polls for seen in poll.records]
