"""Compacted topics: in the end each key has its latest value, and values read on the way do not contradict it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from millstream.testing.history.observed import Observed
from millstream.testing.history.operations import Anomaly, History, Kind, Outcome
from millstream.testing.history.reading import aborted_reads, wrong_steps
from millstream.testing.history.sending import duplicates, inconsistent_offsets, nonmonotonic_sends


@dataclass(frozen=True, slots=True)
class Put:
    """A value of a key, or None to remove it. A key has one writer, which sends one value after the other."""

    partition: str
    key: str
    value: str | None
    outcome: Outcome
    offset: int | None


@dataclass(frozen=True, slots=True)
class Found:
    """The last record of a key when everything was read at the end."""

    partition: str
    key: str
    value: str | None
    offset: int


@dataclass(slots=True)
class CompactedHistory:
    """`log` has the sends and polls of all records, any of which compaction may remove."""

    log: History = field(default_factory=History)
    puts: list[Put] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    final: set[str] = field(default_factory=set)
    """Partitions that were read to the end."""


def told_as(key: str, value: str | None, offset: int | None) -> str:
    """A record in the log's history: a removal has no unique value, so its offset identifies it."""
    return f"{key}={value}" if value is not None else f"{key} removed at {offset}"


def judge_compacted(history: CompactedHistory) -> list[Anomaly]:
    observed = Observed(history.log)
    checks = (inconsistent_offsets, duplicates, aborted_reads, nonmonotonic_sends, _steps_back)
    return [*(anomaly for check in checks for anomaly in check(observed)), *_old_values(history)]


def _steps_back(observed: Observed) -> Iterator[Anomaly]:
    """Compaction makes readers skip offsets; they never go back."""
    return (each for each in wrong_steps(observed) if each.kind is Kind.NONMONOTONIC_POLL)


def _old_values(history: CompactedHistory) -> Iterator[Anomaly]:
    found = {(each.partition, each.key): each for each in history.found}
    puts: dict[tuple[str, str], list[Put]] = {}
    for put in history.puts:
        puts.setdefault((put.partition, put.key), []).append(put)
    for place, of_key in puts.items():
        if place[0] in history.final and (wrong := _contradiction(of_key, found.get(place))) is not None:
            yield Anomaly(Kind.OLD_VALUE, place[0], f"{place[1]}: {wrong}")


def _contradiction(puts: Iterable[Put], found: Found | None) -> str | None:
    puts = list(puts)
    # A send of unknown outcome may have been written late, after others.
    known = [put for put in puts if put.outcome is Outcome.OK and put.offset is not None]
    unsure = [put for put in puts if put.outcome is not Outcome.FAILED and put not in known]
    last = known[-1] if known else None
    if found is None:
        is_removed = last is None or last.value is None or any(put.value is None for put in unsure)
        return None if is_removed else f"it is gone; {last} was acknowledged"
    if last is not None and last.offset is not None:
        if found.offset < last.offset:
            return f"it has {found.value} of offset {found.offset}; {last} was acknowledged"
        if found.offset == last.offset:
            return None if found.value == last.value else f"it has {found.value}; {last} was acknowledged"
    return (
        None
        if any(put.value == found.value for put in unsure)
        else f"it has {found.value}, which nobody sent last"
    )
