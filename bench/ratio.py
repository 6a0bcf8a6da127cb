"""Ratios of interleaved rounds: the machine is noisy, so round i is compared with round i only."""

from dataclasses import dataclass
from statistics import median

from bench.model import LoadCell


@dataclass(frozen=True, slots=True)
class Ratio:
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def throughput_ratio(ours: LoadCell, reference: LoadCell) -> Ratio:
    ratios = [
        our.messages_per_second / other.messages_per_second
        for our, other in zip(ours.samples, reference.samples, strict=False)
    ]
    return Ratio(median(ratios), min(ratios), max(ratios))
