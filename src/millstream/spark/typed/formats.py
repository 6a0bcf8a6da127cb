"""The formats of keys and values: a column of bytes in, a typed column out, and which rows did not fit and why.

Records are decoded one by one, so a bad one harms no other.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql.types import DataType

from millstream.protocol.message_frame import MessageFrame, decode_frame
from millstream.spark.typed.layout import FRAME, Format
from millstream.spark.typed.types import Typed, arrow_type

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Decoded:
    column: pa.Array
    bad: Mapping[int, str]
    """The reasons for rows whose bytes do not fit, by row; the column is null there."""


class Decoder(Protocol):
    def decode(self, raw: pa.Array) -> Decoded: ...


def decoder_for(form: Format, kind: DataType) -> Decoder:
    match form:
        case Format.BINARY:
            return _Unchanged()
        case Format.STRING:
            return _Text()
        case Format.FRAME:
            return _OneByOne(_frame, lambda rows: pa.array(rows, arrow_type(FRAME)))
    typed = Typed(kind)
    decoder: Any = msgspec.json.Decoder if form is Format.JSON else msgspec.msgpack.Decoder
    return _OneByOne(decoder(typed.annotation).decode, typed.column)


class _Unchanged:
    def decode(self, raw: pa.Array) -> Decoded:
        return Decoded(raw, {})


class _Text:
    def decode(self, raw: pa.Array) -> Decoded:
        try:
            return Decoded(raw.cast(pa.string()), {})
        except pa.ArrowInvalid:
            decoded = _OneByOne(lambda data: data.decode(), lambda rows: pa.array(rows, pa.string()))
            return decoded.decode(raw)


@dataclass(frozen=True, slots=True)
class _OneByOne:
    read: Callable[[bytes], Any]
    column: Callable[[Sequence[Any]], pa.Array]

    def decode(self, raw: pa.Array) -> Decoded:
        read = self.read
        rows: list[Any] = []
        bad: dict[int, str] = {}
        for data in raw.to_pylist():
            try:
                rows.append(None if data is None else read(data))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                bad[len(rows)] = str(error)
                rows.append(None)
        return Decoded(self.column(rows), bad)


def _frame(data: bytes) -> dict[str, Any]:
    frame: MessageFrame = decode_frame(data)
    try:
        time = _EPOCH + timedelta(milliseconds=frame.timestamp_ms)
    except OverflowError:
        raise ValueError(f"the frame's timestamp {frame.timestamp_ms} is no time") from None
    headers = [{"key": name, "value": value} for name, value in frame.headers]
    return {"timestamp": time, "key": frame.key, "value": frame.value, "headers": headers or None}
