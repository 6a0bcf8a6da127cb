"""An MQTT client of single packets on a plain socket: what it sends and expects is up to the test."""

import socket

from millstream.protocol.mqtt.decoder import Decoder, Side
from millstream.protocol.mqtt.encoder import encode
from millstream.protocol.mqtt.packets import (
    Connack,
    Connect,
    Filter,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
)
from millstream.protocol.mqtt.properties import ConnectProperties
from support.node import NodeProcess

# For a machine with other work.
_PATIENCE_S = 60.0


def mqtt_address(node: NodeProcess, listener: str = "mqtt") -> tuple[str, int]:
    host, _, port = str(node.log_entries("listening for MQTT clients")[-1][listener]).rpartition(":")
    return host, int(port)


class RawMqtt:
    """Closed without DISCONNECT at the end of a `with`, as a client that is killed is."""

    def __init__(self, node: NodeProcess, version: int = 5, patience_s: float = _PATIENCE_S) -> None:
        self.version = version
        self._socket = socket.create_connection(mqtt_address(node), timeout=patience_s)
        self._decoder = Decoder(side=Side.CLIENT, version=version)
        self._heard = []

    def __enter__(self) -> "RawMqtt":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, *packets) -> None:
        self._socket.sendall(b"".join(encode(each, self.version) for each in packets))

    def hear(self):
        """The next packet; None when the server has closed the connection."""
        while not self._heard:
            data = self._socket.recv(65_536)
            if not data:
                return None
            self._heard += self._decoder.feed(data)
        return self._heard.pop(0)

    def expect(self, kind):
        heard = self.hear()
        assert isinstance(heard, kind), f"{heard} instead of {kind.__name__}"
        return heard

    def find(self, kind):
        """The next packet of this kind; messages that come before it are heard later."""
        passed = []
        while isinstance(heard := self.hear(), Publish) and kind is not Publish:
            passed.append(heard)
        self._heard = passed + self._heard
        assert isinstance(heard, kind), f"{heard} instead of {kind.__name__}"
        return heard

    def hears_nothing(self, seconds: float = 0.5) -> bool:
        """Nothing comes for a moment: for what should never come, however long one waits."""
        self._socket.settimeout(seconds)
        try:
            return not self._heard and self._socket.recv(65_536) == b"?"
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(_PATIENCE_S)

    def connect(self, client_id: str, *, clean: bool = True, expiry_s: int = 0, **fields) -> Connack:
        properties = (
            ConnectProperties(session_expiry_s=expiry_s) if self.version == 5 else ConnectProperties()
        )
        self.send(Connect(client_id, self.version, clean, properties=properties, **fields))
        connack = self.expect(Connack)
        assert connack.reason == 0
        return connack

    def subscribe(self, *filters: str, qos: int = 2) -> None:
        self.send(Subscribe(1, tuple(Filter(each, qos) for each in filters)))
        assert self.expect(Suback).reasons == (qos,) * len(filters)

    def publish(self, topic: str, payload: bytes, qos: int = 1, packet_id: int = 1, **fields) -> None:
        """Until the exchange is over."""
        self.send(Publish(topic, payload, qos, packet_id if qos else 0, **fields))
        if qos == 1:
            assert self.find(Puback) == Puback(packet_id)
        elif qos == 2:
            assert self.find(Pubrec) == Pubrec(packet_id)
            self.send(Pubrel(packet_id))
            assert self.find(Pubcomp) == Pubcomp(packet_id)

    def receive(self) -> Publish:
        """The next message, acknowledged."""
        message = self.expect(Publish)
        if message.qos == 1:
            self.send(Puback(message.packet_id))
        elif message.qos == 2:
            self.send(Pubrec(message.packet_id))
            self.find(Pubrel)
            self.send(Pubcomp(message.packet_id))
        return message
