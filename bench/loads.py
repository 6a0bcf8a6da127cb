"""What the driver can be asked to do."""

from dataclasses import dataclass

# Bounds what one run writes, so that the kernel's write-back of one run does not throttle the next.
MAX_RUN_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    """Ends after `seconds` or `max_bytes`, whichever comes first."""

    partitions: int
    size: int
    seconds: float
    acks: str = "all"
    linger_ms: float = 5
    batch_bytes: int = 1_000_000
    codec: str = "none"
    idempotence: bool = False
    producers: int = 1
    rate: float = 0
    copy: bool = False
    max_bytes: int = MAX_RUN_BYTES

    def arguments(self) -> list[str]:
        options: dict[str, str | int | float] = {
            "partitions": self.partitions,
            "size": self.size,
            "seconds": self.seconds,
            "count": 0 if self.rate else max(1, self.max_bytes // self.size),
            "acks": self.acks,
            "linger-ms": self.linger_ms,
            "batch-bytes": self.batch_bytes,
            "codec": self.codec,
            "idempotence": int(self.idempotence),
            "handles": self.producers,
            "feeders": min(self.producers, 2),
            "rate": self.rate,
            "copy": int(self.copy),
        }
        return ["produce", *_flags(options)]


@dataclass(frozen=True, slots=True)
class ConsumeLoad:
    """Reads every partition from start to end, `passes` times."""

    partitions: int
    passes: int = 1

    def arguments(self) -> list[str]:
        return ["consume", *_flags({"partitions": self.partitions, "passes": self.passes})]


Load = ProduceLoad | ConsumeLoad


def _flags(options: dict[str, str | int | float]) -> list[str]:
    return [text for name, value in options.items() for text in (f"--{name}", str(value))]
