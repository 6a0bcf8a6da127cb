"""Single values that are written and read, each linearizable: topic settings, group offsets."""

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.testing.history.groups import GroupHistory
from millstream.testing.history.linearizable import NEVER, Call, is_linearizable
from millstream.testing.history.operations import Anomaly, Kind, Outcome


@dataclass(frozen=True, slots=True)
class Write:
    """`end` is infinite unless the operation is known to be done."""

    key: str
    value: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Read:
    """`value` None: there was none."""

    key: str
    value: str | None
    start: float
    end: float


def judge_registers(writes: Iterable[Write], reads: Iterable[Read]) -> list[Anomaly]:
    """Before the first of them, no value is set."""
    reads = list(reads)
    read = {(each.key, each.value) for each in reads}
    # A request is the value to write, None for a read; an answer is the value found, "" for a write.
    calls: dict[str, list[Call[str | None, tuple[str | None]]]] = {}
    for write in writes:
        is_known = write.end != NEVER
        # An operation of unknown outcome whose value was never read can be left out.
        if is_known or (write.key, write.value) in read:
            answer = ("",) if is_known else None
            calls.setdefault(write.key, []).append(Call(write.value, answer, write.start, write.end))
    for each in reads:
        calls.setdefault(each.key, []).append(Call(None, (each.value,), each.start, each.end))
    return [
        Anomaly(Kind.NOT_LINEARIZABLE, key, f"no order explains these answers: {_describe(of_key)}")
        for key, of_key in calls.items()
        if not is_linearizable(of_key, None, _step)
    ]


def judge_positions(group: GroupHistory) -> list[Anomaly]:
    """A group's committed offset of each partition."""
    writes = [
        Write(each.key, str(each.offset), each.start, each.end if each.outcome is Outcome.OK else NEVER)
        for each in group.commits
        if each.outcome is not Outcome.FAILED
    ]
    reads = [
        Read(each.key, str(each.offset) if each.offset >= 0 else None, each.start, each.end)
        for each in group.positions
    ]
    return judge_registers(writes, reads)


def _step(state: str | None, request: str | None) -> tuple[str | None, tuple[str | None]]:
    return (state, (state,)) if request is None else (request, ("",))


def _describe(calls: list[Call[str | None, tuple[str | None]]]) -> str:
    return "; ".join(
        f"{f'write {call.request}' if call.request is not None else f'read {call.answer}'}"
        f" {call.start:.3f} to {call.end:.3f}"
        for call in sorted(calls, key=lambda call: call.start)
    )
