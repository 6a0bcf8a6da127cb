"""A kind of coordinator: a state machine, its internal topic, and the few lines that say how it is run."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from millstream.coordinator.decision import Request, StateMachine

M = TypeVar("M", bound=StateMachine[Any, Any, Any, Any])


class InternalTopic(msgspec.Struct, frozen=True):
    """Made when it is first needed, with as many replicas as there are nodes, up to three."""

    name: str
    partitions: int
    """Counts only then: how many there are is in the metadata from then on."""
    configs: tuple[tuple[str, str], ...] = ()

    @property
    def all_configs(self) -> tuple[tuple[str, str], ...]:
        return tuple({**_CONFIGS, **dict(self.configs)}.items())


_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": str(100 * 1024 * 1024),
    # A decision is one batch, whatever its size; requests bound it.
    "max.message.bytes": str(128 * 1024 * 1024),
    # Coordinators count time so that it never jumps; a wall clock that does must not make their appends fail.
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


def _admit_all(_machine: Any, _request: Request[Any]) -> None:
    """Nothing is refused before the machine decides."""


def _no_effects(partition: int, effect: Any) -> None:
    raise NotImplementedError(f"partition {partition} has decided on {effect!r}, and nothing performs it")


class Definition(msgspec.Struct, Generic[M], frozen=True):
    topic: InternalTopic
    new_machine: Callable[[int], M]
    """An empty machine for the partition with that number."""
    requests: Any = None
    """The union of the requests that other nodes may send; None where none comes from there."""
    admit: Callable[[M | None, Request[Any]], None] = _admit_all
    """Before a request is decided: KafkaError where there is no room for what it brings."""
    perform: Callable[[int, Any], None] = _no_effects
    """Start an effect of the partition with that number; what takes long goes on by itself."""


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, in 32-bit signed arithmetic."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = (value * 31 + byte) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(units), 2):
            value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    value = java_string_hash(key)
    # Java's abs of the smallest integer is negative; Kafka uses 0 there.
    return 0 if value == -(1 << 31) else abs(value) % partition_count
