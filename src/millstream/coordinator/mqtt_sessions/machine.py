"""The state machine of one partition of `__mqtt_sessions`: who owns a session, when its will is due, when it ends.

A will is published once: when its delay is over or its session ends, whichever is first, unless the client returns to
its session in time. A session ends when its expiry is over, when a client starts clean, and with its
connection if it has no expiry.
"""

import enum
from typing import Final, NamedTuple

from msgspec.structs import replace

from millstream.coordinator.deadlines import Deadlines
from millstream.coordinator.decision import Decision, StateMachine
from millstream.coordinator.mqtt_sessions import progress
from millstream.coordinator.mqtt_sessions.attendance import Attendance
from millstream.coordinator.mqtt_sessions.outbox import Outbox, Releases
from millstream.coordinator.mqtt_sessions.records import (
    FlightKey,
    PendingKey,
    ProducerKey,
    SessionKey,
    SessionRecord,
    StoredProducer,
    StoredSession,
    decode_record,
    encode_record,
)
from millstream.coordinator.mqtt_sessions.requests import (
    Attend,
    CloseSession,
    Confirm,
    Confirmed,
    Disown,
    Done,
    FindSubscribers,
    OpenSession,
    PendingAppended,
    PendingRefused,
    ProducerGiven,
    Receive,
    Release,
    SessionEffect,
    SessionOpened,
    SessionReply,
    SessionRequest,
    Subscribe,
    Wanted,
)
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.coordinator.mqtt_sessions.state import NOT_YET, Session, SessionState
from millstream.coordinator.mqtt_sessions.turn import Turn
from millstream.protocol.errors import ErrorCode, KafkaError

# Bounds the time of one turn when ten thousand sessions end at once.
_TIMERS_PER_TURN: Final = 500
_LOST_PER_TURN: Final = 500
# A lease is counted down in parts, so that a pause of the process or a jump of the clock costs only one part.
_LEASE_PARTS: Final = 4
# How long to wait before recording that messages were appended, if nothing else is written: nobody waits for it.
_FINISHED_MS: Final = 500


class _TimerKind(enum.Enum):
    WILL = "will"
    EXPIRE = "expire"
    NODE = "node"
    ATTEND = "attend"
    RELEASE = "release"
    FINISHED = "finished"


class _Timer(NamedTuple):
    kind: _TimerKind
    name: str
    """A client id, a node, or the token of a request."""


_FINISHED: Final = _Timer(_TimerKind.FINISHED, "")


SessionDecision = Decision[SessionRecord, SessionReply, SessionEffect]


class SessionCoordinator(StateMachine[SessionRequest, SessionRecord, SessionReply, SessionEffect]):
    """`incarnation` is new for each machine, so that nodes notice that volatile state was lost."""

    def __init__(self, shard: int, settings: SessionSettings, incarnation: int) -> None:
        self.state = SessionState()
        self._shard = shard
        self._settings = settings
        self._deadlines: Deadlines[_Timer] = Deadlines()
        self._lease_parts_left: dict[str, int] = {}
        self._attendance = Attendance(incarnation)
        self._outbox = Outbox(settings.pending_at_once)
        self._releases = Releases()

    @property
    def pending_bytes(self) -> int:
        return self._outbox.waiting_bytes

    # -- events

    def handle(self, request: SessionRequest, token: int, now_ms: int) -> SessionDecision:
        turn = Turn(self.state, now_ms)
        answer: SessionReply = Done()
        match request:
            case OpenSession():
                answer = self._open(turn, request)
            case CloseSession():
                self._close(turn, request)
            case Disown():
                self._disown(turn, request)
            case Attend():
                self._attend(turn, request, token)
                return self._decided(turn)
            case Confirm():
                self._confirm(turn, request, token)
                return self._decided(turn)
            case FindSubscribers():
                interest = self.state.interest
                answer = Wanted(tuple(interest.may_want(topic, request.node) for topic in request.topics))
            case ProducerGiven():
                self._producer_given(turn, request)
            case PendingAppended():
                self._pending_appended(turn, request)
            case PendingRefused():
                # First, because all pending messages of the partition get new numbers, and appended ones must not.
                self._write_finished(turn)
                self._outbox.refused(request.number)
                turn.refuse(request.number)
                self._answer_released(turn, (request.number,))
            case Receive():
                self._check_pending()
                progress.receive(turn, request)
            case Release():
                if pending := progress.release(turn, request) - self._outbox.finished:
                    self._releases.wait(token, pending)
                    timer = _Timer(_TimerKind.RELEASE, str(token))
                    self._deadlines.set(timer, now_ms + self._settings.release_ms)
                    return self._decided(turn)
            case Subscribe():
                progress.subscribe(turn, request, self._settings.max_subscriptions)
            case _:
                progress.HANDLERS[type(request)](turn, request)
        turn.reply(token, answer)
        return self._decided(turn)

    def replay(self, record: SessionRecord) -> None:
        self.state.replay(record)

    def encode(self, record: SessionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> SessionRecord | None:
        return decode_record(key, value)

    def loaded(self, now_ms: int, /) -> SessionDecision:
        """Nodes with connections get a full lease; timers of disconnected sessions continue."""
        turn = Turn(self.state, now_ms)
        all_pending = range(self.state.last_pending_number + 1)
        for client_id, session in list(self.state.sessions.items()):
            session.received = dict.fromkeys(session.received, all_pending)
            if session.stored == NOT_YET:
                turn.clear(client_id, session)
                del self.state.sessions[client_id]
            elif session.stored.node:
                self._lease(session.stored.node, now_ms)
            else:
                self._schedule(client_id, session.stored)
        self._outbox.load(self.state)
        return self._decided(turn)

    def next_deadline(self) -> int | None:
        return self._deadlines.next()

    def on_time(self, now_ms: int, /) -> SessionDecision:
        turn = Turn(self.state, now_ms)
        for _ in range(_TIMERS_PER_TURN):
            timer = self._deadlines.pop_due(now_ms)
            if timer is None:
                break
            match timer.kind:
                case _TimerKind.WILL:
                    self._will_due(turn, timer.name)
                case _TimerKind.EXPIRE:
                    self._expired(turn, timer.name)
                case _TimerKind.NODE:
                    self._lease_part_over(turn, timer.name)
                case _TimerKind.ATTEND:
                    turn.reply_all(self._attendance.hurry(timer.name))
                case _TimerKind.RELEASE:
                    if self._releases.give_up(int(timer.name)):
                        turn.reply(int(timer.name), Done())
                case _TimerKind.FINISHED:
                    self._write_finished(turn)
        return self._decided(turn)

    def _decided(self, turn: Turn) -> SessionDecision:
        if turn.has_records:
            self._write_finished(turn)
        turn.effects += self._outbox.effects(self.state)
        return turn.decision()

    # -- opening and closing

    def _open(self, turn: Turn, request: OpenSession) -> SessionOpened:
        client_id, now_ms = request.client_id, turn.now_ms
        session = self.state.sessions.get(client_id)
        present = False
        if session is None:
            if len(self.state.sessions) >= self._settings.max_sessions:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "there are too many MQTT sessions")
        else:
            self._displace(turn, client_id, session.stored)
            ends = request.clean_start or self._is_over(session.stored, now_ms)
            self._settle_will(turn, session.stored, ends=ends)
            if ends:
                turn.remove(client_id, session)
            else:
                present = True
        epoch = max(now_ms, self.state.last_epoch + 1)
        stored = StoredSession(epoch, request.expiry_s, request.node, 0, request.will)
        turn.write(SessionKey(client_id), stored)
        self._deadlines.cancel(_Timer(_TimerKind.WILL, client_id))
        self._deadlines.cancel(_Timer(_TimerKind.EXPIRE, client_id))
        self._lease(request.node, now_ms)
        return self._opened(self.state.sessions[client_id], present=present)

    def _opened(self, session: Session, *, present: bool) -> SessionOpened:
        flights = sorted(session.flights.items(), key=lambda each: each[1].number)
        return SessionOpened(
            session.stored.epoch,
            self._shard,
            present,
            tuple(session.subscriptions.items()),
            tuple(session.positions.values()),
            tuple(flights),
            tuple(session.received),
        )

    def _displace(self, turn: Turn, client_id: str, stored: StoredSession) -> None:
        if stored.node:
            turn.reply_all(self._attendance.displace(stored.node, client_id, stored.epoch))

    def _settle_will(self, turn: Turn, stored: StoredSession, *, ends: bool) -> None:
        """A connection was replaced by another: publish its will now, or drop it."""
        will = stored.will
        if will is not None and (ends or (stored.node and (not will.delay_s or not stored.expiry_s))):
            turn.owe(will.messages)

    def _close(self, turn: Turn, request: CloseSession) -> None:
        session = progress.owned(turn, request.client_id, request.epoch)
        turn.move(request.client_id, session, request.positions)
        for packet_id in list(session.flights):
            turn.write(FlightKey(request.client_id, packet_id), None)
        if request.expiry_s:
            for packet_id, flight in request.in_flight:
                turn.write(FlightKey(request.client_id, packet_id), flight)
        left = replace(session.stored, expiry_s=request.expiry_s)
        self._leave(turn, request.client_id, session, left, send_will=request.send_will)

    def _disown(self, turn: Turn, request: Disown) -> None:
        session = self.state.sessions.get(request.client_id)
        if session is not None and session.stored.node == request.node:
            self._leave(turn, request.client_id, session, session.stored, send_will=False)

    def _leave(
        self, turn: Turn, client_id: str, session: Session, stored: StoredSession, *, send_will: bool
    ) -> None:
        """The connection has ended: start the session's timers, or end the session if it has no expiry."""
        will = stored.will if send_will else None
        if will is not None and not (will.delay_s and stored.expiry_s):
            turn.owe(will.messages)
            will = None
        if not stored.expiry_s:
            turn.remove(client_id, session)
            return
        stored = replace(stored, node="", left_ms=turn.now_ms, will=will)
        turn.write(SessionKey(client_id), stored)
        self._schedule(client_id, stored)

    def _schedule(self, client_id: str, stored: StoredSession) -> None:
        self._deadlines.set(_Timer(_TimerKind.EXPIRE, client_id), _expires_ms(stored))
        if stored.will is not None:
            due_ms = min(stored.left_ms + stored.will.delay_s * 1000, _expires_ms(stored))
            self._deadlines.set(_Timer(_TimerKind.WILL, client_id), due_ms)

    def _will_due(self, turn: Turn, client_id: str) -> None:
        session = self.state.sessions.get(client_id)
        if session is not None and not session.stored.node and session.stored.will is not None:
            turn.owe(session.stored.will.messages)
            turn.write(SessionKey(client_id), replace(session.stored, will=None))

    def _expired(self, turn: Turn, client_id: str) -> None:
        session = self.state.sessions.get(client_id)
        if session is not None and self._is_over(session.stored, turn.now_ms):
            if session.stored.will is not None:
                turn.owe(session.stored.will.messages)
            turn.remove(client_id, session)

    @staticmethod
    def _is_over(stored: StoredSession, now_ms: int) -> bool:
        """Whether the session has expired; without an expiry it ends when its connection is replaced."""
        return not stored.expiry_s if stored.node else _expires_ms(stored) <= now_ms

    # -- nodes

    def _lease(self, node: str, now_ms: int, parts: int = _LEASE_PARTS) -> None:
        self._lease_parts_left[node] = parts
        self._deadlines.set(_Timer(_TimerKind.NODE, node), now_ms + self._settings.lease_ms // _LEASE_PARTS)

    def _lease_part_over(self, turn: Turn, node: str) -> None:
        if parts_left := self._lease_parts_left.pop(node) - 1:
            self._lease(node, turn.now_ms, parts_left)
        else:
            self._node_lost(turn, node)

    def _attend(self, turn: Turn, request: Attend, token: int) -> None:
        self._lease(request.node, turn.now_ms)
        turn.reply_all(self._attendance.attend(request.node, request.after_event, token))
        self._deadlines.set(_Timer(_TimerKind.ATTEND, request.node), turn.now_ms + self._settings.attend_ms)

    def _confirm(self, turn: Turn, request: Confirm, token: int) -> None:
        self._lease(request.node, turn.now_ms)
        gone = tuple(
            (client_id, epoch)
            for client_id, epoch in request.sessions
            if (session := self.state.sessions.get(client_id)) is None
            or session.stored.epoch != epoch
            or session.stored.node != request.node
        )
        turn.reply(token, Confirmed(gone))

    def _node_lost(self, turn: Turn, node: str) -> None:
        """The node's connections are lost; if it returns, it is notified."""
        lost = [
            (client_id, session)
            for client_id, session in self.state.sessions.items()
            if session.stored.node == node
        ]
        for client_id, session in lost[:_LOST_PER_TURN]:
            self._displace(turn, client_id, session.stored)
            self._leave(turn, client_id, session, session.stored, send_will=True)
        if len(lost) > _LOST_PER_TURN:
            self._lease_parts_left[node] = 1
            self._deadlines.set(_Timer(_TimerKind.NODE, node), turn.now_ms)

    # -- the outbox

    def _producer_given(self, turn: Turn, request: ProducerGiven) -> None:
        if self.state.producer is None:
            turn.write(ProducerKey(), StoredProducer(request.producer_id))

    def _check_pending(self) -> None:
        if self._outbox.waiting_bytes > self._settings.max_pending_bytes:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many messages wait to be appended")

    def _pending_appended(self, turn: Turn, request: PendingAppended) -> None:
        """Answer the publishers after the append; the record of it is written later, with other records."""
        self._outbox.appended(request.numbers)
        if _FINISHED not in self._deadlines:
            self._deadlines.set(_FINISHED, turn.now_ms + _FINISHED_MS)
        self._answer_released(turn, request.numbers)

    def _write_finished(self, turn: Turn) -> None:
        finished, self._outbox.finished = self._outbox.finished, set()
        for number in sorted(finished):
            if number in self.state.pending:
                turn.write(PendingKey(number), None)
        self._deadlines.cancel(_FINISHED)

    def _answer_released(self, turn: Turn, numbers: tuple[int, ...]) -> None:
        for token in self._releases.settled(numbers):
            self._deadlines.cancel(_Timer(_TimerKind.RELEASE, str(token)))
            turn.reply(token, Done())


def _expires_ms(stored: StoredSession) -> int:
    return stored.left_ms + stored.expiry_s * 1000
