"""The most that one client of the HTTP door or the MQTT door may ask for at once, for `bench.stall`."""

import json
import socket
import struct
from collections.abc import Callable

from bench.rawclient import receive
from millstream.gateway.bodies import FRAMES, MAX_BATCH, NDJSON
from millstream.protocol.message_frame import MessageFrame, encode_frame

Request = Callable[[int, int], str]

_LONGEST_NAME = 65_535
_SECONDS = 120.0


def _post(kind: str, body: Callable[[int], bytes]) -> Request:
    def post(port: int, count: int) -> str:
        content = body(count)
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            head = f"POST /produce?topic=stall HTTP/1.1\r\nHost: stall\r\nContent-Type: {kind}\r\nConnection: close\r\n"
            connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            answer = b""
            while part := connection.recv(1 << 16):
                answer += part
        return f"{answer.split(b' ', 2)[1].decode()}, {len(answer):,} bytes"

    return post


def _messages(count: int) -> list[dict[str, object]]:
    return [
        {"payload": f"message {number}", "key": f"key-{number}", "headers": {"a": "b"}}
        for number in range(count)
    ]


def _array(count: int) -> bytes:
    return json.dumps(_messages(count)).encode()


def _lines(count: int) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in _messages(count))


def _frames(count: int) -> bytes:
    return b"".join(encode_frame(MessageFrame(-1, None, b"message %d" % number)) for number in range(count))


def _remaining_length(size: int) -> bytes:
    out = b""
    while True:
        size, digit = divmod(size, 128)
        out += bytes((digit | (0x80 if size else 0),))
        if not size:
            return out


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + _remaining_length(len(body)) + body


def _text(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def _mqtt(packets: Callable[[int], list[bytes]], answers: int = 1) -> Request:
    """As a client of MQTT 5: what it is answered, or that it was cut off."""

    def send(port: int, count: int) -> str:
        with socket.create_connection(("127.0.0.1", port), _SECONDS) as connection:
            connection.sendall(_packet(0x10, _text(b"MQTT") + b"\x05\x02\0\0" + b"\0" + _text(b"stall")))
            _answer(connection)
            connection.sendall(b"".join(packets(count)))
            try:
                kinds = [_answer(connection) for _ in range(answers)]
            except OSError:
                return "closed"
        return f"packet 0x{kinds[-1]:02x}"

    return send


def _answer(connection: socket.socket) -> int:
    first, size, shift = receive(connection, 1)[0], 0, 0
    while True:
        digit = receive(connection, 1)[0]
        size |= (digit & 127) << shift
        shift += 7
        if not digit & 128:
            break
    receive(connection, size)
    return first


def _subscribe(filters: list[bytes]) -> bytes:
    return _packet(0x82, b"\0\1" + b"\0" + b"".join(_text(each) + b"\1" for each in filters))


def _short_filters(count: int) -> list[bytes]:
    return [_subscribe([b"stall/%d/+/#" % number for number in range(count)])]


def _long_filters(count: int) -> list[bytes]:
    """Of 65,535 bytes each, with as many levels as fit."""
    deepest = b"/".join([b"+"] * (_LONGEST_NAME // 2 + 1))
    return [_subscribe([b"%02d" % number + deepest[2:] for number in range(count)])]


def _unsubscribe(count: int) -> list[bytes]:
    return [_packet(0xA2, b"\0\1" + b"\0" + b"".join(_text(b"stall/%d" % number) for number in range(count)))]


def _publish(count: int) -> list[bytes]:
    """Of QoS 1, each to another topic of 65,535 bytes."""
    deepest = b"/".join([b"a"] * (_LONGEST_NAME // 2 + 1))
    return [
        _packet(0x32, _text(b"%02d" % number + deepest[2:]) + struct.pack(">H", number + 1) + b"\0" + b"x")
        for number in range(count)
    ]


# Which door, what, how many, and the request; packets of MQTT are 1 MiB at most.
DOORS: list[tuple[str, str, int, Request]] = [
    ("http", "JSON array", MAX_BATCH, _post("application/json", _array)),
    ("http", "NDJSON", MAX_BATCH, _post(NDJSON, _lines)),
    ("http", "frames", MAX_BATCH, _post(FRAMES, _frames)),
    ("mqtt", "short filters", 1_000, _mqtt(_short_filters)),
    ("mqtt", "too many filters", 50_000, _mqtt(_short_filters)),
    ("mqtt", "filters of 65,535 bytes", 15, _mqtt(_long_filters)),
    ("mqtt", "filters to forget", 50_000, _mqtt(_unsubscribe)),
    ("mqtt", "topics of 65,535 bytes", 15, _mqtt(_publish)),
]
