"""Telemetry records of every kind that comes to mind, right and wrong, to hold two parsers against each other."""

import json
import random
from collections.abc import Iterator
from typing import Any

from millstream.pipeline.record import RecordForm, TelemetryRecord
from support.telemetry import BAD_RECORDS, SENTINELS, right_record

RECORD = TelemetryRecord(
    1772366400123, "DCGM_FI_DEV_GPU_UTIL", "GPU-5fd4f087", 42.5, "3", "nvidia3", "NVIDIA H100", "host-1", "trainer",
    "pod-1", "ml", 'DCGM_FI_DRIVER_VERSION="535.129.03",Hostname="host-1"',
)  # fmt: skip
TIMES = (
    "2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5Z", "2026-03-01T12:00:00.123456Z", "2026-03-01T12:00:00.123456789Z",
    "2026-03-01T13:00:00.250+01:00", "2026-03-01T06:29:00-05:30", "2026-03-01 12:00:00Z", "2026-03-01t12:00:00z",
    "2026-02-29T12:00:00Z", "2024-02-29T12:00:00Z", "2000-02-29T00:00:00Z", "2026-02-28T23:59:60Z",
    "2026-03-01T24:00:00Z",
    "2026-03-01T12:00:00", "2026-03-01T12:00Z", "2026-03-01T12:00:00.Z", "2026-03-01T12:00:00+18:00",
    "2026-03-01T12:00:00+19:00", "2026-03-01T12:00:00+01", "2026-3-1T12:00:00Z", " 2026-03-01T12:00:00Z",
    "1999-12-31T23:59:59Z",
    "2026-03-02T23:59:59Z", "2026-03-03T00:00:00Z", "2026-03-03T00:00:01Z", "0000-01-01T00:00:00Z", "", "now",
    1772366400, None,
    "2026-03-01T12:00:00.0000000001Z", "2026-03-01T12:00:00+00:00", "2026-03-01T12:00:00-00:00",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "-0.0", "1", "42.5", "100", "100.0", "1e1", "1E+1", "0.1", "0.30000000000000004",
    "12.345678901234567890",
    "99.99999999999999999999999", "007", "1.", ".5", "+5", "0x10", "1_0", "NaN", "Infinity", "-Infinity", "1e400",
    "9" * 400,
    "0." + "3" * 60, "9223372036854775794", "9223372036854775807", "9223372036854775808", "2147483647",
    "140737488355328",
    "18446744073709551616", "true", "null", "[]", "{}", '"42"', '"42.5"', '" 42"', '"-0"', '"1e1"', '"+5"', '".5"',
    '"5."', '""',
    '"4\\u0032"', '"0.30000000000000004"', '"007"', '"9223372036854775794"',
)  # fmt: skip
TEXTS = (
    '"plain"', '""', '"with \\"quotes\\" and \\\\ and \\/"', '"line\\nfeed\\ttab"', '"\\u00e9"', '"é ü 😀"',
    '"{brace"', '"[bracket"',
    '"true"', '"10.0.0.1"', '"5abc"', '"a{b"', "5", "0", "-5", "5.0", "1e3", "123456789012345678901", "true", "null",
    "{}", "[]",
    '{"a": 1}', '"\\x"', '"\t"', '"\\ud83d"', '"trailing\\\\"',
)  # fmt: skip
LABELS = (
    '{}', '{"gpu": "3", "model_name": "H100"}', '{"gpu": 3, "pod": "p", "b": "x", "a": "y"}', '{"gpu": null}',
    '{"gpu": "3", "gpu": "4"}',
    '{"model_name": "[odd"}', '{"a": {"b": 1}}', '{"a": [1]}', '{"a": 1.50}', '{"a": true}', '{"z": "é", "é": "z"}',
    '{"a": "q\\"q"}',
    '{ "driver_version" : "535" , "namespace":"n","container":"c" }', '"text, not labels"', "null", "5", "[]",
    '{"a": "/", "A": "", "aa": " "}',
)  # fmt: skip


def plain_records() -> list[bytes]:
    """Records that must not need a second look: they are what streamers send."""
    made = [RECORD.to_json(form) for form in RecordForm]
    made += [
        json.dumps(right_record(value=value), indent=indent).encode()
        for value in (1, 0.5, "7.5")
        for indent in (None, 2)
    ]
    made += [
        json.dumps(right_record(uuid="a uuid of another make", Hostname=None, hostname="10.0.0.1")).encode()
    ]
    made += [
        json.dumps(
            {**right_record(Hostname=None), "container": None, "extra": [1][0], "more": {"a": "b"}}
        ).encode()
    ]
    made += [json.dumps(right_record(value=value)).encode() for value in (0.30000000000000004, SENTINELS[0])]
    return made


def corpus(seed: int, mutations: int) -> list[bytes | None]:
    """Everything above, combined, and records with a few bytes changed."""
    dice = random.Random(seed)
    made: list[bytes | None] = [None, *plain_records(), *(bad.data for bad in BAD_RECORDS)]
    made += _with("timestamp", (json.dumps(time) for time in TIMES))
    made += _with("value", NUMBERS)
    for name in (
        "metric_name",
        "gpu_id",
        "device",
        "uuid",
        "modelName",
        "Hostname",
        "container",
        "labels_raw",
        "surplus",
    ):
        made += _with(name, TEXTS)
    for labels in LABELS:
        nested = json.loads(RECORD.to_json(RecordForm.NESTED))
        made.append(
            _written({**nested, "labels": 0}).replace(b'"labels": 0', b'"labels": ' + labels.encode())
        )
        made += _with("labels", [labels])
    made += [_envelope(*each) for each in _ENVELOPES]
    made += list(_odd_frames())
    shapes = [record for record in made if record is not None and 2 < len(record) < 2000]
    for _ in range(mutations):
        made.append(_mutated(dice, dice.choice(shapes)))
    return made


def _with(name: str, values: Any) -> Iterator[bytes]:
    for value in values:
        mark = json.dumps(f"<{name}>").encode()
        yield _written(right_record(**{name: f"<{name}>"})).replace(mark, value.encode())


def _written(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode()


_INNER = RECORD.to_json(RecordForm.NESTED).decode()
_ENVELOPES = (
    ('"k"', _INNER, ""), ("5", _INNER, ""), ("null", _INNER, ""), ('"k"', _INNER, ', "metric_name": "x"'),
    ('"k"', _INNER, ', "metric_name": null'),
    ('"k"', _INNER, ', "timestamp": 5, "partition": 3, "headers": {"a": "b"}'),
    ('"k"', _INNER, ', "headers": [1]'), ('"k"', _INNER, ', "headers": {"a": {"b": "c"}}'),
    ('"k"', _INNER, ', "key": "again"'),
    ('"k"', '{"value": ' + _INNER + "}", ""), ('"k"', _INNER.replace('"GPU-5fd4f087"', "7"), ""),
    ('"GPU-k"', _INNER.replace('"gpu_id":"GPU-5fd4f087",', ""), ""),
    ('""', _INNER.replace('"gpu_id":"GPU-5fd4f087",', ""), ""),
    ('"k\\n"', _INNER.replace('"gpu_id":"GPU-5fd4f087",', ""), ""),
)  # fmt: skip


def _envelope(key: str, value: str, more: str) -> bytes:
    return f'{{"key": {key}, "value": {value}{more}}}'.encode()


def _odd_frames() -> Iterator[bytes]:
    right = _written(right_record())
    yield from (right + tail for tail in (b" ", b"\n\t\r ", b"x", b"{}", b",", b"}", b"\0", b"\xc2\xa0"))
    yield from (head + right for head in (b" ", b"\xef\xbb\xbf", b"[", b"x", b"\0"))
    yield b"[" + right + b"]"
    yield b"[" + right + b"," + _written(right_record(timestamp="2026-03-01T12:00:09Z")) + b", 5]"
    yield b"[]"
    yield right[:-1] + b',"uuid": "GPU-again"}'
    yield right[:-1] + b',"surplus": 1, "surplus": 2}'
    yield right[:-1] + b',"a": 1, "\\u0061": 2}'
    yield right[:-1] + b',"hostname": "another"}'
    yield right[:-1] + b",}"
    yield right[:-1] + b',"' + b"k" * 2000 + b'": 1}'
    yield right[:-1] + b"".join(b',"k%d": %d' % (n, n) for n in range(80)) + b"}"
    yield right.replace(b'"uuid"', b'"Uuid"')
    yield right.replace(b'"', b"'")
    yield right.replace(b", ", b" ,\n ")
    yield _written(right_record(uuid=None, gpu_id="GPU-by-id"))
    yield _written({**right_record(gpu_id="GPU-by-id"), "uuid": None})
    yield _written({**right_record(uuid=""), "gpu_id": "A1", "labels": {"gpu": "7"}})
    yield _written({**right_record(), "Hostname": None, "hostname": "5"})
    yield _written({**right_record(), "modelName": None, "labels": {"model_name": "[x"}})
    yield _written({**right_record(), "gpu_id": None})


def _mutated(dice: random.Random, record: bytes) -> bytes:
    changed = bytearray(record)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        place = dice.randrange(len(changed))
        what = dice.randrange(4)
        if what == 0:
            del changed[place]
        elif what == 1:
            changed.insert(place, dice.choice(b'",:{}[]\\ 0159.-+eEtfnu\x00\x1f\x7f\x80\xc3\xa9\xff'))
        elif what == 2:
            changed[place] = dice.choice(b'",:{}[]\\ 0159.-+eEtfnu\x00\x1f\x7f\x80\xc3\xa9\xff')
        else:
            other = dice.randrange(len(changed))
            changed[place], changed[other] = changed[other], changed[place]
        if len(changed) < 3:
            break
    return bytes(changed)
