"""All sessions of one partition of `__mqtt_sessions`, replayed from its log."""

from typing import cast

from millstream.coordinator.mqtt_sessions.interest import Interest
from millstream.coordinator.mqtt_sessions.records import (
    FlightKey,
    PendingKey,
    Position,
    PositionsKey,
    ProducerKey,
    ReceivedKey,
    SequenceKey,
    SessionKey,
    SessionRecord,
    StoredFlight,
    StoredPending,
    StoredPositions,
    StoredProducer,
    StoredSequence,
    StoredSession,
    StoredSubscription,
    SubscriptionKey,
)

Place = tuple[str, int]

NOT_YET = StoredSession(epoch=0, expiry_s=0, node="", left_ms=0)
"""A session whose own record has not been read yet, only its parts."""


class Session:
    __slots__ = ("flights", "positions", "received", "stored", "subscriptions")

    def __init__(self, stored: StoredSession) -> None:
        self.stored = stored
        self.subscriptions: dict[str, StoredSubscription] = {}
        self.positions: dict[Place, Position] = {}
        self.flights: dict[int, StoredFlight] = {}
        self.received: dict[int, range] = {}
        """By identifier: numbers of its pending messages; after a start, of all messages pending then."""


class SessionState:
    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.pending: dict[int, StoredPending] = {}
        self.sequences: dict[Place, StoredSequence] = {}
        self.producer: StoredProducer | None = None
        self.last_epoch = 0
        self.last_pending_number = 0
        self._interest: Interest | None = None

    @property
    def interest(self) -> Interest:
        if self._interest is None:
            self._interest = Interest()
            for client_id, session in self.sessions.items():
                self._interest.add(client_id, session.stored, session.subscriptions)
        return self._interest

    def replay(self, record: SessionRecord) -> None:
        """Apply one record; a record about something already gone changes nothing."""
        key, value = record.key, record.value
        match key:
            case SessionKey():
                self._replay_session(key.client_id, cast(StoredSession | None, value))
            case PendingKey():
                self.last_pending_number = max(self.last_pending_number, key.number)
                if value is None:
                    self.pending.pop(key.number, None)
                else:
                    self.pending[key.number] = cast(StoredPending, value)
            case SequenceKey():
                self.sequences[key.topic, key.partition] = cast(StoredSequence, value)
            case ProducerKey():
                self.producer = cast(StoredProducer | None, value)
            case _:
                session = self.sessions.get(key.client_id)
                if session is None and value is not None:
                    # Compaction keeps the newest record of each key: a session's may come after its parts.
                    session = self.sessions[key.client_id] = Session(NOT_YET)
                if session is not None:
                    _replay_part(session, record)
                    if self._interest is not None and isinstance(key, SubscriptionKey):
                        update = self._interest.unsubscribed if value is None else self._interest.subscribed
                        update(key.client_id, key.filter)

    def still_pending(self, numbers: range) -> set[int]:
        fewest = numbers if len(numbers) < len(self.pending) else self.pending
        return {number for number in fewest if number in numbers and number in self.pending}

    def _replay_session(self, client_id: str, value: StoredSession | None) -> None:
        session = self.sessions.get(client_id)
        if self._interest is not None:
            self._interest.session_changed(None if session is None else session.stored, value)
        if value is None:
            self.sessions.pop(client_id, None)
            return
        self.last_epoch = max(self.last_epoch, value.epoch)
        if session is None:
            self.sessions[client_id] = Session(value)
        else:
            session.stored = value


def _replay_part(session: Session, record: SessionRecord) -> None:
    key, value = record.key, record.value
    match key:
        case SubscriptionKey():
            if value is None:
                session.subscriptions.pop(key.filter, None)
            else:
                session.subscriptions[key.filter] = cast(StoredSubscription, value)
        case PositionsKey():
            session.positions = {} if value is None else cast(StoredPositions, value).by_place()
        case FlightKey():
            if value is None:
                session.flights.pop(key.packet_id, None)
            else:
                session.flights[key.packet_id] = cast(StoredFlight, value)
        case ReceivedKey():
            if value is None:
                session.received.pop(key.packet_id, None)
            else:
                session.received[key.packet_id] = range(0)
