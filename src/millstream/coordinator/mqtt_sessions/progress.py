"""Requests of a session's owner: subscriptions, read positions, identifiers in use."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from millstream.coordinator.mqtt_sessions.records import (
    FlightKey,
    FlightStage,
    Position,
    ReceivedKey,
    StoredReceived,
    SubscriptionKey,
)
from millstream.coordinator.mqtt_sessions.requests import (
    KeepReceived,
    Receive,
    Release,
    Reserve,
    SaveProgress,
    Subscribe,
    Unsubscribe,
)
from millstream.coordinator.mqtt_sessions.state import Session
from millstream.coordinator.mqtt_sessions.turn import Turn
from millstream.protocol.errors import ErrorCode, KafkaError


def owned(turn: Turn, client_id: str, epoch: int) -> Session:
    """The session, if the connection of that epoch owns it; otherwise KafkaError."""
    session = turn.state.sessions.get(client_id)
    if session is None or session.stored.epoch != epoch or not session.stored.node:
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "the session belongs to another connection")
    return session


def subscribe(turn: Turn, request: Subscribe, most: int) -> None:
    session = owned(turn, request.client_id, request.epoch)
    added = {text for text, _ in request.subscriptions} - session.subscriptions.keys()
    if len(session.subscriptions) + len(added) > most:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"a session has at most {most} subscriptions")
    for text, value in request.subscriptions:
        turn.write(SubscriptionKey(request.client_id, text), value)
    turn.move(request.client_id, session, request.positions)


def receive(turn: Turn, request: Receive) -> None:
    session = owned(turn, request.client_id, request.epoch)
    for packet_id, messages in request.messages:
        if packet_id not in session.received:
            first = turn.state.last_pending_number + 1
            turn.write(ReceivedKey(request.client_id, packet_id), StoredReceived(turn.now_ms))
            turn.owe(messages)
            session.received[packet_id] = range(first, turn.state.last_pending_number + 1)


def release(turn: Turn, request: Release) -> set[int]:
    """Free the identifiers; returns the numbers of their messages that are not appended yet."""
    session = owned(turn, request.client_id, request.epoch)
    pending: set[int] = set()
    for packet_id in request.packet_ids:
        if packet_id in session.received:
            pending |= turn.state.still_pending(session.received[packet_id])
            turn.write(ReceivedKey(request.client_id, packet_id), None)
    return pending


def _unsubscribe(turn: Turn, request: Unsubscribe) -> None:
    session = owned(turn, request.client_id, request.epoch)
    for text in request.filters:
        if text in session.subscriptions:
            turn.write(SubscriptionKey(request.client_id, text), None)


def _reserve(turn: Turn, request: Reserve) -> None:
    session = owned(turn, request.client_id, request.epoch)
    for packet_id, flight in request.flights:
        turn.write(FlightKey(request.client_id, packet_id), flight)
    once = (
        Position(each.topic, each.partition, 0, each.offset + 1, each.topic_id)
        for packet_id, each in request.flights
        if packet_id not in request.shared
    )
    turn.move(request.client_id, session, once)


def _keep_received(turn: Turn, request: KeepReceived) -> None:
    session = owned(turn, request.client_id, request.epoch)
    for packet_id in request.packet_ids:
        flight = session.flights.get(packet_id)
        if flight is not None:
            turn.write(FlightKey(request.client_id, packet_id), replace(flight, stage=FlightStage.RELEASED))


def _save_progress(turn: Turn, request: SaveProgress) -> None:
    session = owned(turn, request.client_id, request.epoch)
    turn.move(request.client_id, session, request.positions)
    for packet_id in request.acknowledged:
        flight = session.flights.get(packet_id)
        if flight is not None and flight.number <= request.last_number:
            turn.write(FlightKey(request.client_id, packet_id), None)


HANDLERS: Final[dict[type, Callable[[Turn, Any], None]]] = {
    Unsubscribe: _unsubscribe,
    Reserve: _reserve,
    KeepReceived: _keep_received,
    SaveProgress: _save_progress,
}
