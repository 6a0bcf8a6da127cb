"""A coordinator of MQTT sessions with its log and its effects: crashes build it again from what is durable."""

import msgspec

from millstream.coordinator.mqtt_sessions.machine import SessionCoordinator
from millstream.coordinator.mqtt_sessions.records import KeptMessage, StoredWill
from millstream.coordinator.mqtt_sessions.requests import (
    AppendPending,
    CloseSession,
    NeedProducer,
    OpenSession,
    PendingAppended,
    PendingRefused,
    ProducerGiven,
    SessionRequest,
)
from millstream.coordinator.mqtt_sessions.settings import SessionSettings
from millstream.protocol.errors import KafkaError


def kept(text, topic="mqtt", partition=0):
    return KeptMessage(topic, partition, b"key", text.encode(), (("h", None), ("i", b"1")))


def will(text, delay_s=0):
    return StoredWill((kept(text),), delay_s)


class Coordinator:
    """`appended` is what the log has got, each with its sequence number once."""

    def __init__(self, **settings):
        self.settings = SessionSettings(**settings)
        self.log = []
        self.appended = {}
        self.epochs = {}
        self.started = {}
        self.effects = []
        self.answers = {}
        self.now_ms = 1_000
        self.incarnation = 0
        self.holds_effects = False
        self._token = 0
        self._load()

    def _load(self):
        self.incarnation += 1
        self.machine = SessionCoordinator(3, self.settings, self.incarnation)
        for key, value in self.log:
            self.machine.replay(self.machine.decode(key, value))
        self._take(self.machine.loaded(self.now_ms))

    def crash(self, *, compacted=False):
        """What was given out and not reported is given out again."""
        self.effects = []
        if compacted:
            newest = {}
            for key, value in self.log:
                newest.pop(key, None)
                newest[key] = value
            self.log = [(key, value) for key, value in newest.items() if value is not None]
        self._load()

    def ask(self, request):
        """The answer; None where it is deferred."""
        decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=SessionRequest)
        self._token += 1
        token = self._token
        self._take(self.machine.handle(decoded, token, self.now_ms))
        return self.answers.pop(token, None)

    def refused(self, request):
        try:
            self.ask(request)
        except KafkaError as error:
            return error.code
        return None

    def wait(self, seconds):
        end_ms = self.now_ms + round(seconds * 1000)
        while (due := self.machine.next_deadline()) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            self._take(self.machine.on_time(self.now_ms))
        self.now_ms = end_ms

    def _take(self, decision):
        self.log += [self.machine.encode(record) for record in decision.records]
        for reply in decision.replies:
            self.answers[reply.token] = reply.answer
        self.effects += decision.effects
        while self.effects and not self.holds_effects:
            self.perform()

    def perform(self, *, reports=True):
        effect = self.effects.pop(0)
        if isinstance(effect, NeedProducer):
            if reports:
                self.ask(ProducerGiven(77))
            return
        assert isinstance(effect, AppendPending)
        refused = next((each for each in effect.messages if each.message.value == b"refused"), None)
        if refused is not None:
            self.ask(PendingRefused(refused.number))
            return
        for each in effect.messages:
            place = (each.message.topic, each.message.partition)
            if effect.epoch > self.epochs.get(place, 0):
                self.epochs[place] = effect.epoch
                self.started[place] = len(self.appended.get(place, []))
            before = self.appended.setdefault(place, [])[self.started.get(place, 0) :]
            assert each.sequence <= len(before), "a gap in the sequence"
            if each.sequence == len(before):
                self.appended[place].append(each.message.value.decode())
        if reports:
            self.ask(PendingAppended(tuple(each.number for each in effect.messages)))

    def sent(self, topic="mqtt", partition=0):
        return self.appended.get((topic, partition), [])

    # -- short forms

    def open(self, client_id="c", node="n1", clean=False, expiry_s=100, will=None):
        return self.ask(OpenSession(client_id, node, clean, expiry_s, will))

    def close(self, opened, client_id="c", *, send_will=True, expiry_s=100, **more):
        return self.ask(CloseSession(client_id, opened.epoch, send_will, expiry_s, **more))
