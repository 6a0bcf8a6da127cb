"""The body of /produce as messages: one, a batch, or binary frames.

- `{"payload": "..."}` with optional `key`, `headers`, `partition`, `timestamp`: one message. A payload that is not a
  string is stored as its JSON text.
- `[{"payload": ...}, ...]`, or one such object per line as `application/x-ndjson`: a batch.
- `application/vnd.millstream.frames`: a sequence of frames of `protocol/message_frame`.
- Anything else: one message, stored unchanged.
"""

import base64
import binascii
import functools
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from millstream.doors import Message
from millstream.http.messages import Problem
from millstream.protocol.message_frame import FrameError, decode_frame
from millstream.protocol.records import Headers

FRAMES = "application/vnd.millstream.frames"
NDJSON = "application/x-ndjson"
MAX_BATCH = 10_000
"""Messages in one request: more would block the loop for too long."""
MAX_HEADERS = 30_000
"""Headers of all messages in one request, for the same reason."""
FEW_OBJECTS = 2 * MAX_BATCH
"""In an array with more objects, payloads included, elements are counted before they are decoded."""
LONG_JSON_BYTES = 8 << 20
MAX_PARTS = 3_000_000
"""Commas and brackets in JSON longer than that: one decode call takes tens of milliseconds for so many."""

_LENGTH_BYTES = 4


class Outgoings(msgspec.Struct, frozen=True):
    messages: list[Message]
    is_batch: bool
    """Whether the sender expects one answer per message."""
    partitions: list[int | None] | None = None
    """Each message's requested partition; None if no message requests one."""


_NO_HEADERS = msgspec.Raw(b"null")


class _About(msgspec.Struct, kw_only=True):
    key: str | None = None
    headers: msgspec.Raw = _NO_HEADERS
    partition: int | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """Limited to 64 bits: a larger one would fail the whole batch, with the messages of other senders."""
    encoding: str = ""


class _TextBody(_About):
    payload: str


class _Body(_About):
    """A payload that is not text is stored as its JSON."""

    payload: msgspec.Raw


class _MaybePayload(msgspec.Struct):
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


# Tried first: nearly all payloads are text, and these decoders are twice as fast.
_one_text = msgspec.json.Decoder(_TextBody)
_some_text = msgspec.json.Decoder(list[_TextBody])
_one = msgspec.json.Decoder(_Body)
_some = msgspec.json.Decoder(list[_Body])
_text = msgspec.json.Decoder(str)
_headers = msgspec.json.Decoder(dict[str, str] | None)
_has_payload = msgspec.json.Decoder(_MaybePayload)
_have_payload = msgspec.json.Decoder(list[_MaybePayload])


def read_body(body: bytes, content_type: str) -> Outgoings:
    """Raises `Problem` if any part of a batch is invalid."""
    try:
        return _read_body(body, content_type)
    except UnicodeDecodeError as error:
        # In one of our fields: msgspec has no error of its own for this.
        raise Problem(400, f"bad body: {error}") from None


def _read_body(body: bytes, content_type: str) -> Outgoings:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == FRAMES:
        return Outgoings([*_frames(body)], is_batch=True)
    if kind == NDJSON:
        return _outgoings(_lines(body), is_batch=True)
    first = body[:1]
    # Without this word, the body is not in our format and need not be decoded.
    if kind != "application/octet-stream" and first in (b"{", b"[") and b'"payload"' in body:
        _check_parts(body)
        if first == b"{":
            one = _object(body)
            if one is not None:
                return _outgoings([one], is_batch=False)
        else:
            several = _array(body)
            if several:
                return _outgoings(several, is_batch=True)
    return Outgoings([Message(None, body)], is_batch=False)


def _object(body: bytes) -> _TextBody | _Body | None:
    """None for other JSON: without a payload, it is one message, stored unchanged."""
    try:
        return _read_one(body)
    except msgspec.DecodeError as error:
        if _mention_payload([body]):
            raise Problem(400, f"bad body: {error}") from None
        return None


def _mention_payload(objects: Sequence[bytes | msgspec.Raw]) -> bool:
    """False if one of them is not an object."""
    try:
        found = [_has_payload.decode(each) for each in objects]
    except msgspec.DecodeError:
        return False
    return any(each.payload is not msgspec.UNSET for each in found)


def _array(body: bytes) -> Sequence[_TextBody | _Body] | None:
    if body.count(b"{") > FEW_OBJECTS:
        return _long_array(body)
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


def _long_array(body: bytes) -> Sequence[_TextBody | _Body] | None:
    """As `_array`, but decodes only as many elements as a batch may have: millions would block the loop."""
    try:
        filled = msgspec.structs.astuple(_first_elements().decode(body))
        elements = [each for each in filled if each is not msgspec.UNSET]
    except msgspec.DecodeError:
        return None
    try:
        found = [_read_one(each) for each in elements]
    except msgspec.DecodeError as error:
        if _mention_payload(elements):
            raise Problem(400, f"bad body: {error}") from None
        return None
    _check_count(len(found))
    return found


@functools.cache
def _first_elements() -> msgspec.json.Decoder[msgspec.Struct]:
    """Decodes one more element of an array than a batch may have, and skips the rest without creating objects."""
    fields = [(f"_{number}", msgspec.Raw, msgspec.UNSET) for number in range(MAX_BATCH + 1)]
    return msgspec.json.Decoder(msgspec.defstruct("_FirstElements", fields, array_like=True))


def _lines(body: bytes) -> Sequence[_TextBody | _Body]:
    _check_count(body.count(b"\n"))
    found = [*_line_by_line(body)]
    _check_count(len(found))
    return found


def _line_by_line(body: bytes) -> Iterator[_TextBody | _Body]:
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            _check_parts(line)
            try:
                yield _read_one(line)
            except msgspec.DecodeError as error:
                raise Problem(400, f"bad body: line {number}: {error}") from None


def _check_count(count: int) -> None:
    if count > MAX_BATCH:
        raise Problem(413, f"a batch has at most {MAX_BATCH} messages")


def _check_parts(data: bytes) -> None:
    if len(data) > LONG_JSON_BYTES and sum(map(data.count, (b",", b"[", b"{"))) > MAX_PARTS:
        raise Problem(
            413,
            f"JSON of more than {LONG_JSON_BYTES >> 20} MiB has at most {MAX_PARTS} commas and brackets;"
            " send the payload as application/octet-stream",
        )


def _check_headers(count: int) -> None:
    if count > MAX_HEADERS:
        raise Problem(413, f"the messages of a request have at most {MAX_HEADERS} headers together")


def _read_one(data: bytes | msgspec.Raw) -> _TextBody | _Body:
    try:
        return _one_text.decode(data)
    except msgspec.ValidationError:
        return _one.decode(data)


def _outgoings(bodies: Sequence[_TextBody | _Body], *, is_batch: bool) -> Outgoings:
    messages, asks, header_count = [], False, 0
    for body in bodies:
        if type(body) is _TextBody and body.key is None and body.headers is _NO_HEADERS and not body.encoding:
            messages.append(Message(None, body.payload.encode(), (), body.timestamp))
        else:
            messages.append(_message(body))
            header_count += len(messages[-1].headers)
            _check_headers(header_count)
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
    return Message(key, value, _read_headers(bytes(body.headers)), body.timestamp)


def _read_headers(raw: bytes) -> Headers:
    # Name and value have two quotes each, so there are at most this many headers.
    _check_headers(raw.count(b'"') // 4)
    try:
        found = _headers.decode(raw) or {}
    except msgspec.DecodeError as error:
        raise Problem(400, f"bad body: headers: {error}") from None
    return tuple((name, text.encode()) for name, text in found.items())


def _frames(body: bytes) -> Iterator[Message]:
    view, at, count, header_count = memoryview(body), 0, 0, 0
    while at < len(view):
        length = int.from_bytes(view[at : at + _LENGTH_BYTES], "big", signed=True)
        end = at + _LENGTH_BYTES + length
        if length < 0 or end > len(view):
            raise Problem(400, f"bad body: the frame at byte {at} is not whole")
        count += 1
        _check_count(count)
        try:
            frame = decode_frame(view[at:end], MAX_HEADERS)
        except FrameError as error:
            raise Problem(400, f"bad body: the frame at byte {at}: {error}") from None
        header_count += len(frame.headers)
        _check_headers(header_count)
        yield Message(frame.key, frame.value, frame.headers, frame.timestamp_ms)
        at = end
