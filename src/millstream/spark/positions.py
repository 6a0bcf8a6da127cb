"""The start and end positions in the options: earliest, latest, by offset, or by time."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.client.wire.requests import EARLIEST, LATEST
from millstream.spark.errors import OptionError

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Earliest:
    pass


@dataclass(frozen=True, slots=True)
class Latest:
    pass


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets by partition; EARLIEST and LATEST stand for the log's start and end."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Times by partition, in milliseconds. If no record is that late: an error, or the end of the log."""

    times_ms: Mapping[TopicPartition, int]
    or_latest: bool


@dataclass(frozen=True, slots=True)
class AtTime:
    """One time for all partitions."""

    time_ms: int
    or_latest: bool


Position = Earliest | Latest | AtOffsets | AtTimes | AtTime


def starting_position(options: Mapping[str, str], default: Position, *, batch: bool) -> Position:
    or_latest = _or_latest(options.get("startingoffsetsbytimestampstrategy", "error"))
    position = _position(options, "starting", default, or_latest)
    if batch and isinstance(position, Latest):
        raise OptionError("option startingOffsets can't be latest for batch queries")
    if batch and isinstance(position, AtOffsets):
        _refuse(position, LATEST, "startingOffsets", "-1 (latest)")
    return position


def ending_position(options: Mapping[str, str]) -> Position:
    # Whatever the strategy, Spark reads to the end of a log without a record as late as the ending time.
    position = _position(options, "ending", Latest(), True)
    if isinstance(position, Earliest):
        raise OptionError("option endingOffsets can't be earliest")
    if isinstance(position, AtOffsets):
        _refuse(position, EARLIEST, "endingOffsets", "-2 (earliest)")
    return position


def _position(options: Mapping[str, str], which: str, default: Position, or_latest: bool) -> Position:
    """The position in the options. As in Spark, a time for all precedes times by partition, which precede offsets."""
    if (text := options.get(f"{which}timestamp")) is not None:
        return AtTime(_time(f"{which}Timestamp", text), or_latest)
    if (text := options.get(f"{which}offsetsbytimestamp")) is not None:
        times = by_partition(f"{which}OffsetsByTimestamp", text)
        for place, time in times.items():
            if time < 0:
                raise OptionError(
                    f"option {which}OffsetsByTimestamp has {time} for {place[0]}-{place[1]}; times are not negative"
                )
        return AtTimes(times, or_latest)
    text = options.get(f"{which}offsets")
    if text is None:
        return default
    match text.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    offsets = by_partition(f"{which}Offsets", text)
    for place, offset in offsets.items():
        if offset < EARLIEST:
            raise OptionError(
                f"option {which}Offsets has {offset} for {place[0]}-{place[1]}; -2 is the least"
            )
    return AtOffsets(offsets)


def by_partition(option: str, text: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -1}}`"""
    shape = f'option {option} is {text!r}; expected earliest, latest or {{"topic": {{"0": 23, "1": -1}}}}'
    found: Any = _json(text, shape)
    if not isinstance(found, dict):
        raise OptionError(shape)
    result: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            raise OptionError(shape)
        for partition, value in partitions.items():
            if not partition.isdigit() or isinstance(value, bool) or not isinstance(value, int):
                raise OptionError(shape)
            result[topic, int(partition)] = value
    return result


def assigned_partitions(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA": [0, 1], "topicB": [2, 4]}`"""
    shape = f'option assign is {text!r}; expected {{"topicA": [0, 1], "topicB": [2, 4]}}'
    found: Any = _json(text, shape)
    if not isinstance(found, dict) or not found:
        raise OptionError(shape)
    places: set[TopicPartition] = set()
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(
            type(each) is int and each >= 0 for each in partitions
        ):
            raise OptionError(shape)
        places |= {(topic, partition) for partition in partitions}
    return tuple(sorted(places))


def _json(text: str, shape: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise OptionError(shape) from None


def _time(option: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise OptionError(f"option {option} is {text!r}; it must be milliseconds since 1970")
    return value


def _or_latest(text: str) -> bool:
    if text.lower() not in ("error", "latest"):
        raise OptionError(f"option startingOffsetsByTimestampStrategy is {text!r}; choose error or latest")
    return text.lower() == "latest"


def _refuse(position: AtOffsets, offset: int, option: str, name: str) -> None:
    for (topic, partition), given in position.offsets.items():
        if given == offset:
            raise OptionError(f"option {option} for {topic}-{partition} can't be {name} here")
