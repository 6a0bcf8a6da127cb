"""The options of a read, checked, as one value. Their names and meanings are those of Spark's Kafka source."""

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.client.wire.settings import ClusterSettings
from millstream.spark.errors import OptionError
from millstream.spark.group_commits import GroupOptions, group_options
from millstream.spark.kafka_properties import PREFIX, cluster_settings, kafka_properties
from millstream.spark.positions import (
    Earliest,
    Latest,
    Position,
    TopicPartition,
    assigned_partitions,
    ending_position,
    starting_position,
)
from millstream.spark.typed.layout import FORMAT_OPTIONS

log = logging.getLogger("millstream.spark")

_NAMES = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    "failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "groupIdPrefix", "commitOffsets", *FORMAT_OPTIONS,
)  # fmt: skip
# kafka.default.api.timeout.ms limits the retries; no consumer joins a group.
_WITHOUT_EFFECT = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets")
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_DURATION = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Topics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    pattern: str

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name) is not None


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: tuple[TopicPartition, ...]


Subscription = Topics | Pattern | Assigned


@dataclass(frozen=True, slots=True)
class ReadOptions:
    cluster: ClusterSettings
    subscription: Subscription
    start: Position
    end: Position
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    poll_timeout_s: float
    group: GroupOptions | None = None
    """The group to which a stream commits finished offsets."""


def read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    options = {name.lower(): value for name, value in given.items()}
    _check_names(options, streaming)
    default: Position = Latest() if streaming else Earliest()
    maximum, minimum = _count(options, "maxOffsetsPerTrigger"), _count(options, "minOffsetsPerTrigger")
    if maximum is not None and minimum is not None and minimum > maximum:
        raise OptionError("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return ReadOptions(
        cluster=cluster_settings(kafka_properties(options)),
        subscription=_subscription(options),
        start=starting_position(options, default, batch=not streaming),
        end=ending_position(options),
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        include_headers=include_headers(options),
        min_partitions=_count(options, "minPartitions"),
        max_records_per_partition=_count(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_s=_duration_s(options.get("maxtriggerdelay", "15m")),
        poll_timeout_s=(_count(options, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
        group=group_options(options) if _flag(options, "commitOffsets", False) else None,
    )


def include_headers(given: Mapping[str, str]) -> bool:
    return _flag({name.lower(): value for name, value in given.items()}, "includeHeaders", False)


def _check_names(options: Mapping[str, str], streaming: bool) -> None:
    known = {name.lower(): name for name in _NAMES}
    unused = [name for name in _WITHOUT_EFFECT if name.lower() in options]
    if unused:
        log.warning("no effect on format('millstream'), which needs no consumer: %s", ", ".join(unused))
    for name in options:
        if name.startswith(PREFIX) or name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        # Spark also passes its own options and those of other tools; only a likely misspelling is an error.
        if close:
            raise OptionError(f"option {name!r} is unknown; did you mean {known[close[0]]}?")
    for name in _BATCH_ONLY if streaming else _STREAM_ONLY:
        if name.lower() in options:
            kind = "streaming" if streaming else "batch"
            raise OptionError(f"option {name} is not for {kind} queries")


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        named = f" ({' and '.join(given)} are set)" if given else ""
        raise OptionError(f"set exactly one of the options subscribe, subscribePattern and assign{named}")
    text = options[given[0].lower()].strip()
    if given[0] == "assign":
        return Assigned(assigned_partitions(text))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern {text!r} is no regular expression: {error}") from None
        if not text:
            raise OptionError("option subscribePattern is empty")
        return Pattern(text)
    names = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
    if not names:
        raise OptionError("option subscribe names no topic")
    return Topics(names)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"option {name} is {text!r}; it must be true or false")
    return text == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value <= 0:
        raise OptionError(f"option {name} is {text!r}; it must be a whole number above 0")
    return value


def _duration_s(text: str) -> float:
    """Seconds from Spark's notation for durations: 15m, 30s, 500ms; a bare number is milliseconds."""
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"option maxTriggerDelay is {text!r}; expected a time such as 30s or 15m")
    return int(found[1]) * _UNIT_S[found[2] or "ms"]
