"""The context of one event's decision: records are applied as they are decided."""

from collections.abc import Iterable

from millstream.coordinator.decision import Decision, Reply
from millstream.coordinator.mqtt_sessions.records import (
    FlightKey,
    KeptMessage,
    Key,
    PendingKey,
    Position,
    PositionsKey,
    ReceivedKey,
    SequenceKey,
    SessionKey,
    SessionRecord,
    StoredPending,
    StoredPositions,
    StoredSequence,
    SubscriptionKey,
    Value,
)
from millstream.coordinator.mqtt_sessions.requests import SessionEffect, SessionReply
from millstream.coordinator.mqtt_sessions.state import Session, SessionState

_SEQUENCES = 1 << 31


class Turn:
    def __init__(self, state: SessionState, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self._records: list[SessionRecord] = []
        self._sequences: dict[SequenceKey, SessionRecord] = {}
        self._replies: list[Reply[SessionReply]] = []
        self.effects: list[SessionEffect] = []

    @property
    def has_records(self) -> bool:
        return bool(self._records)

    def write(self, key: Key, value: Value | None) -> None:
        record = SessionRecord(key, value)
        self.state.replay(record)
        self._records.append(record)

    def reply(self, token: int, answer: SessionReply) -> None:
        self._replies.append(Reply(token, answer))

    def reply_all(self, answers: Iterable[tuple[int, SessionReply]]) -> None:
        for token, answer in answers:
            self.reply(token, answer)

    def decision(self) -> Decision[SessionRecord, SessionReply, SessionEffect]:
        return Decision([*self._records, *self._sequences.values()], self._replies, effects=self.effects)

    # -- shared steps

    def owe(self, messages: Iterable[KeptMessage]) -> None:
        """Queue messages to be appended once, behind the pending ones of the same partition."""
        for message in messages:
            self._number(self.state.last_pending_number + 1, message)

    def _number(self, number: int, message: KeptMessage) -> None:
        following, epoch = 0, 0
        before = self.state.sequences.get((message.topic, message.partition))
        if before is not None:
            following, epoch = before.following, before.epoch
        self.write(PendingKey(number), StoredPending(message, following))
        # The last number of a decision is enough for each partition: its records are stored together.
        key = SequenceKey(message.topic, message.partition)
        record = SessionRecord(key, StoredSequence((following + 1) % _SEQUENCES, epoch))
        self.state.replay(record)
        self._sequences[key] = record

    def refuse(self, number: int) -> None:
        """Drop a message that is never appended; those behind it get numbers of a new epoch, without a gap."""
        refused = self.state.pending.get(number)
        if refused is None:
            return
        topic, partition = refused.message.topic, refused.message.partition
        self.write(PendingKey(number), None)
        epoch = self.state.sequences[topic, partition].epoch + 1
        self.write(SequenceKey(topic, partition), StoredSequence(0, epoch))
        for other in sorted(self.state.pending):
            message = self.state.pending[other].message
            if (message.topic, message.partition) == (topic, partition):
                self._number(other, message)

    def move(self, client_id: str, session: Session, positions: Iterable[Position]) -> None:
        """Set these positions and keep the others; a position never goes back, except in a recreated topic."""
        merged = dict(session.positions)
        for each in positions:
            before = merged.get((each.topic, each.partition))
            if before is None or len({b"", each.topic_id, before.topic_id}) > 2:
                merged[each.topic, each.partition] = each
            else:
                merged[each.topic, each.partition] = Position(
                    each.topic,
                    each.partition,
                    max(each.offset, before.offset),
                    max(each.once_offset, before.once_offset),
                    before.topic_id or each.topic_id,
                )
        if merged != session.positions:
            self.write(PositionsKey(client_id), StoredPositions.of(merged.values()))

    def clear(self, client_id: str, session: Session) -> None:
        """Remove everything in the session, but not the session itself."""
        for text in list(session.subscriptions):
            self.write(SubscriptionKey(client_id, text), None)
        for packet_id in list(session.flights):
            self.write(FlightKey(client_id, packet_id), None)
        for packet_id in list(session.received):
            self.write(ReceivedKey(client_id, packet_id), None)
        if session.positions:
            self.write(PositionsKey(client_id), None)

    def remove(self, client_id: str, session: Session) -> None:
        self.clear(client_id, session)
        self.write(SessionKey(client_id), None)
