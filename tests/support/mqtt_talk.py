"""A client's side of a connection machine: packets in, packets and wants out."""

from millstream.doors.partitions import Place
from millstream.mqtt.connection import Connection, Opened
from millstream.mqtt.limits import MqttLimits
from millstream.mqtt.outgoing import Delivery, Outgoing
from millstream.mqtt.record_form import Message
from millstream.mqtt.wants import WantOpen
from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import Connect

PLACE = Place("mqtt", 0)


class Talk:
    def __init__(self, version=5, limits=None):
        self.version = version
        self.machine = Connection(limits or MqttLimits(), lambda: "made-up")
        self.decoder = Decoder(side=Side.CLIENT, version=version)
        self.wants = []
        self.now_ms = 1_000_000

    def say(self, *packets):
        """What is answered at once; what is wanted is in `wants`."""
        self.machine.receive(b"".join(encode(each, self.version) for each in packets), self.now_ms)
        return self.heard()

    def heard(self):
        output = self.machine.take()
        self.wants = output.wants
        return self.decoder.feed(output.data)

    def connect(self, session=None, **fields):
        """CONNECT and what comes of it; the session is opened as asked."""
        self.say(Connect(fields.pop("client_id", "c1"), self.version, **fields))
        (opened,) = self.wants
        assert isinstance(opened, WantOpen)
        self.machine.opened(session or Opened(), self.now_ms)
        return self.heard()

    def deliver(self, message, qos, offset=0, **fields):
        delivery = Delivery(Outgoing(message, PLACE, offset), qos, **fields)
        return self.machine.deliver(delivery, self.now_ms), self.heard()

    def delivery(self, qos, offset=0, topic="t", payload=b"x"):
        return Delivery(Outgoing(Message(topic, payload, qos), PLACE, offset), qos)
