"""Rules of MQTT sessions, each broken: what a seed of the simulator must find."""

from typing import Any

import pytest

from millstream.broker.coordinators import mqtt_sessions
from millstream.coordinator.mqtt_sessions import progress
from millstream.coordinator.mqtt_sessions.attendance import Attendance
from millstream.coordinator.mqtt_sessions.machine import SessionCoordinator
from millstream.coordinator.mqtt_sessions.requests import Confirm, Confirmed, Receive
from millstream.coordinator.mqtt_sessions.turn import Turn
from millstream.mqtt.sending import Sending
from millstream.protocol.records import encode_batch


def pubrec_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The identifier of a message of QoS 2 is not kept with it: sent again, it is another message."""

    def receive(turn: Turn, request: Receive) -> None:
        progress.owned(turn, request.client_id, request.epoch)
        for _, messages in request.messages:
            turn.owe(messages)

    patch.setattr(progress, "receive", receive)


def session_taken_over_twice(patch: pytest.MonkeyPatch) -> None:
    """A connection keeps its session though another has it, and nobody tells it."""

    def owned(turn: Turn, client_id: str, _epoch: int) -> Any:
        return turn.state.sessions[client_id]

    def confirm(_self: SessionCoordinator, turn: Turn, _request: Confirm, token: int) -> None:
        turn.reply(token, Confirmed(()))

    patch.setattr(progress, "owned", owned)
    patch.setattr(Attendance, "displace", lambda *_: [])
    patch.setattr(SessionCoordinator, "_confirm", confirm)


def retained_lost(patch: pytest.MonkeyPatch) -> None:
    """The message is acknowledged, and its copy for later subscribers is not written."""

    async def keep(_self: Sending, _place: Any, _copy: Any) -> None:
        return None

    patch.setattr(Sending, "_keep", keep)


def will_sent_twice(patch: pytest.MonkeyPatch) -> None:
    """What a coordinator owes has no number, so a partition does not know again what was appended before."""
    patch.setattr(mqtt_sessions, "encode_batch", lambda records, **_numbers: encode_batch(records))
    patch.setattr(SessionCoordinator, "_pending_appended", _appended)


def _appended(self: SessionCoordinator, _turn: Turn, request: Any) -> None:
    """Nor is it written down that it was."""
    self._outbox.appended(request.numbers)
    self._outbox.finished.clear()


BROKEN = {
    each.__name__: each
    for each in (pubrec_forgotten, session_taken_over_twice, retained_lost, will_sent_twice)
}
