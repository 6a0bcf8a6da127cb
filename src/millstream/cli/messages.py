"""Messages as text: JSON lines that `consume` writes and `produce` reads back, and kcat-like formats.

Bytes that are not UTF-8 appear in JSON as base64 under `key_base64`, `value_base64` and, in a header,
as an object with `base64`, so that a dump can be produced again byte for byte.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

Headers = tuple[tuple[str, bytes | None], ...]

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+|.)", re.DOTALL)


class MessageFormatError(ValueError):
    """The text is not a valid message or format."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IncomingMessage:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default=())


def to_json_line(message: IncomingMessage) -> bytes:
    document: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        **text_or_base64("key", message.key),
        **text_or_base64("value", message.value),
    }
    if message.headers:
        # A list of pairs: Kafka allows a header name more than once, and keeps their order.
        document["headers"] = [[name, header_to_json(value)] for name, value in message.headers]
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def header_to_json(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json_line(line: bytes) -> OutgoingMessage:
    """A message from one line of JSON: `value` (text, null, or any JSON to be sent as JSON), `key`,
    `headers` (an object or a list of pairs), `partition`, `timestamp`; other fields are those that
    `consume --json` adds, and are not for sending."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise MessageFormatError(f"not JSON ({error})") from error
    if not isinstance(document, dict):
        raise MessageFormatError('not a JSON object such as {"key": "a", "value": "b"}')
    unknown = document.keys() - {
        *("topic", "partition", "offset", "timestamp", "headers"),
        *("key", "key_base64", "value", "value_base64"),
    }
    if unknown:
        raise MessageFormatError(f"unknown field {min(unknown)!r}")
    if "value" not in document and "value_base64" not in document:
        raise MessageFormatError("no field 'value'")
    return OutgoingMessage(
        value=bytes_field(document, "value"),
        key=bytes_field(document, "key"),
        headers=headers_field(document.get("headers")),
        partition=integer_field(document, "partition"),
        timestamp_ms=integer_field(document, "timestamp"),
    )


def bytes_field(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return decode_base64(encoded, f"{name}_base64")
    return json_to_bytes(document.get(name))


def json_to_bytes(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def decode_base64(encoded: object, name: str) -> bytes:
    if not isinstance(encoded, str):
        raise MessageFormatError(f"field {name!r} is not base64 text")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise MessageFormatError(f"field {name!r} is not base64 text ({error})") from error


def integer_field(document: dict[str, Any], name: str) -> int | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MessageFormatError(f"field {name!r} is not a number from 0 up")
    return value


def headers_field(value: object) -> Headers:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise MessageFormatError("field 'headers' is neither an object nor a list of pairs")
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        match pair:
            case (str(name), {"base64": encoded}) | [str(name), {"base64": encoded}]:
                headers.append((name, decode_base64(encoded, f"headers.{name}")))
            case (str(name), content) | [str(name), content]:
                headers.append((name, json_to_bytes(content)))
            case _:
                raise MessageFormatError("field 'headers' is neither an object nor a list of pairs")
    return tuple(headers)


def length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def headers_text(message: IncomingMessage) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in message.headers
    )


FIELDS: dict[str, Callable[[IncomingMessage], bytes]] = {
    "s": lambda message: message.value or b"",
    "S": lambda message: length(message.value),
    "k": lambda message: message.key or b"",
    "K": lambda message: length(message.key),
    "T": lambda message: b"%d" % message.timestamp_ms,
    "h": headers_text,
    "t": lambda message: message.topic.encode(),
    "p": lambda message: b"%d" % message.partition,
    "o": lambda message: b"%d" % message.offset,
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Callable[[IncomingMessage], bytes]:
    """A function that writes a message as `text` says; see `FIELDS` for what follows a percent sign."""
    parts: list[Callable[[IncomingMessage], bytes]] = []
    for name, hexadecimal, escape, literal in TOKEN.findall(text):
        if name:
            if name not in FIELDS:
                raise MessageFormatError(f"%{name} is not one of {' '.join('%' + key for key in FIELDS)}")
            parts.append(FIELDS[name])
            continue
        if literal in {"%", "\\"}:
            raise MessageFormatError(f"the format ends in a lone {literal}")
        constant = bytes.fromhex(hexadecimal) or ESCAPES.get(escape) or (escape or literal).encode()
        parts.append(lambda _, constant=constant: constant)  # type: ignore[misc]
    return lambda message: b"".join([part(message) for part in parts])
