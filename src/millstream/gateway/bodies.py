"""The body of /produce as messages: one, a batch, or binary frames.

- `{"payload": "..."}`, and beside it `key`, `headers`, `partition`, `timestamp`: one message. A payload that is no
  string is kept as its JSON text.
- `[{"payload": ...}, ...]` or, as `application/x-ndjson`, one of these a line: a batch.
- `application/vnd.millstream.frames`: frames of `protocol/message_frame`, one after the other.
- Anything else is one message as it is.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from millstream.doors import Message
from millstream.http.messages import Problem
from millstream.protocol.message_frame import FrameError, MessageFrame, decode_frame, encode_frame
from millstream.protocol.records import Headers

FRAMES = "application/vnd.millstream.frames"
NDJSON = "application/x-ndjson"
MAX_BATCH = 10_000
"""Messages of one request: more would hold the loop for too long."""

_LENGTH_BYTES = 4


class Outgoings(msgspec.Struct, frozen=True):
    messages: list[Message]
    is_batch: bool
    """Whether the sender wants an answer for each of several."""
    partitions: list[int | None] | None = None
    """Of each message, what its sender asked for; None where it asked for none at all."""


class _About(msgspec.Struct, kw_only=True):
    key: str | None = None
    headers: dict[str, str] | None = None
    partition: int | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """Beyond 64 bits it would fit into no batch, and those of others would fail with it."""
    encoding: str = ""


class _TextBody(_About):
    payload: str


class _Body(_About):
    """A payload that is no text is kept as its JSON."""

    payload: msgspec.Raw


class _MaybePayload(msgspec.Struct):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


# Nearly all payloads are text, and this way is twice as fast.
_one_text = msgspec.json.Decoder(_TextBody)
_some_text = msgspec.json.Decoder(list[_TextBody])
_one = msgspec.json.Decoder(_Body)
_some = msgspec.json.Decoder(list[_Body])
_text = msgspec.json.Decoder(str)
_has_payload = msgspec.json.Decoder(_MaybePayload)
_have_payload = msgspec.json.Decoder(list[_MaybePayload])


def read_body(body: bytes, content_type: str) -> Outgoings:
    """Raises `Problem` for a batch of which a part cannot be read."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == FRAMES:
        return Outgoings([*_frames(body)], is_batch=True)
    if kind == NDJSON:
        return _outgoings(_lines(body), is_batch=True)
    if kind != "application/octet-stream":
        first = body[:1]
        if first == b"{":
            one = _object(body)
            if one is not None:
                return _outgoings([one], is_batch=False)
        elif first == b"[":
            several = _array(body)
            if several:
                return _outgoings(several, is_batch=True)
    return Outgoings([Message(None, body)], is_batch=False)


def _object(body: bytes) -> _TextBody | _Body | None:
    """None where it is not ours: somebody's JSON without a payload is a message as it is."""
    try:
        return _read_one(body)
    except msgspec.DecodeError as error:
        if _mentions_payload(body):
            raise Problem(400, f"bad body: {error}") from None
        return None


def _mentions_payload(body: bytes) -> bool:
    try:
        return _has_payload.decode(body).payload is not msgspec.UNSET
    except msgspec.DecodeError:
        return False


def _array(body: bytes) -> Sequence[_TextBody | _Body] | None:
    found: Sequence[_TextBody | _Body]
    try:
        try:
            found = _some_text.decode(body)
        except msgspec.ValidationError:
            found = _some.decode(body)
    except msgspec.DecodeError as error:
        try:
            mentions = any(each.payload is not msgspec.UNSET for each in _have_payload.decode(body))
        except msgspec.DecodeError:
            mentions = False
        if mentions:
            raise Problem(400, f"bad body: {error}") from None
        return None
    _check_count(len(found))
    return found


def _lines(body: bytes) -> Sequence[_TextBody | _Body]:
    _check_count(body.count(b"\n"))
    found: Sequence[_TextBody | _Body]
    try:
        found = _one_text.decode_lines(body)
    except msgspec.DecodeError:  # one is no text, or wrong: line by line, to say which
        found = [*_line_by_line(body)]
    _check_count(len(found))
    return found


def _line_by_line(body: bytes) -> Iterator[_TextBody | _Body]:
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                yield _read_one(line)
            except msgspec.DecodeError as error:
                raise Problem(400, f"bad body: line {number}: {error}") from None


def _check_count(count: int) -> None:
    if count > MAX_BATCH:
        raise Problem(413, f"a batch has at most {MAX_BATCH} messages")


def _read_one(data: bytes) -> _TextBody | _Body:
    try:
        return _one_text.decode(data)
    except msgspec.ValidationError:
        return _one.decode(data)


def _outgoings(bodies: Sequence[_TextBody | _Body], *, is_batch: bool) -> Outgoings:
    messages, asks = [], False
    for body in bodies:
        if type(body) is _TextBody and body.key is None and not body.headers and not body.encoding:
            messages.append(Message(None, body.payload.encode(), (), body.timestamp))
        else:
            messages.append(_message(body))
        asks = asks or body.partition is not None
    return Outgoings(messages, is_batch, [body.partition for body in bodies] if asks else None)


def _message(body: _TextBody | _Body) -> Message:
    if isinstance(body, _TextBody):
        value = body.payload.encode()
    else:
        raw = bytes(body.payload)
        value = _text.decode(raw).encode() if raw[:1] == b'"' else raw
    if body.encoding == "base64":
        try:
            value = base64.b64decode(value, validate=True)
        except binascii.Error:
            raise Problem(400, "bad body: the payload is not base64") from None
    elif body.encoding:
        raise Problem(400, "bad body: encoding may be base64, or left out")
    key = None if body.key is None else body.key.encode()
    headers: Headers = tuple((name, text.encode()) for name, text in (body.headers or {}).items())
    return Message(key, value, headers, body.timestamp)


def _frames(body: bytes) -> Iterator[Message]:
    view, at, count = memoryview(body), 0, 0
    while at < len(view):
        length = int.from_bytes(view[at : at + _LENGTH_BYTES], "big", signed=True)
        end = at + _LENGTH_BYTES + length
        if length < 0 or end > len(view):
            raise Problem(400, f"bad body: the frame at byte {at} is not whole")
        count += 1
        _check_count(count)
        try:
            frame = decode_frame(view[at:end])
        except FrameError as error:
            raise Problem(400, f"bad body: the frame at byte {at}: {error}") from None
        yield Message(frame.key, frame.value, frame.headers, frame.timestamp_ms)
        at = end


def frame_of(message: Message) -> bytes:
    return encode_frame(MessageFrame(message.timestamp_ms, message.key, message.value, message.headers))
