"""A kind of coordinator: its state machine, its internal topic, and how it is run."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from millstream.coordinator.decision import Request, StateMachine

M = TypeVar("M", bound=StateMachine[Any, Any, Any, Any])


class InternalTopic(msgspec.Struct, frozen=True):
    """Created when first needed, with as many replicas as there are nodes, up to three."""

    name: str
    partitions: int
    """Used only at creation; afterwards the metadata has the number."""
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
    # Coordinators use a steady time; a wall clock that jumps must not make their appends fail.
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


def _admit_all(_machine: Any, _request: Request[Any]) -> None:
    """The default: refuse nothing before the machine decides."""


def _no_effects(partition: int, effect: Any) -> None:
    raise NotImplementedError(f"partition {partition} has decided on {effect!r}, and nothing performs it")


class Definition(msgspec.Struct, Generic[M], frozen=True):
    topic: InternalTopic
    new_machine: Callable[[int], M]
    """Returns an empty machine for a partition number."""
    requests: Any = None
    """The union of the requests that other nodes may send; None if they send none."""
    admit: Callable[[M | None, Request[Any]], None] = _admit_all
    """Called before a request is decided; raises KafkaError when there is no room for its data."""
    perform: Callable[[int, Any], None] = _no_effects
    """Starts an effect of a partition, given by number; long effects continue in the background."""


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
