"""Counters, gauges and histograms that cost the hot path an integer addition.

`prometheus_client`'s own `labels().inc()` costs about two microseconds and a lock; here a caller keeps the
child it counts with and writes `counter.value += 1`. One event loop owns all of them, so there are no locks.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

LATENCY_SECONDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
)


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Distribution(NamedTuple):
    """The state of a histogram: `counts[i]` are values up to `bounds[i]`, the last count is beyond all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Sample(NamedTuple):
    labels: tuple[str, ...]
    value: float | Distribution


class FamilySnapshot(NamedTuple):
    """A metric and its values at one moment, safe to hand to another thread."""

    kind: Kind
    name: str
    documentation: str
    label_names: tuple[str, ...]
    samples: list[Sample]


class Counter:
    """Only grows: `counter.value += 1`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def read(self) -> float:
        return self.value


class Gauge:
    """Goes up and down: `gauge.value = 5`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def read(self) -> float:
        return self.value


class Histogram:
    """Counts values by fixed upper bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_many(self, value: float, count: int) -> None:
        """Observe the same value so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def read(self) -> Distribution:
        return Distribution(self.bounds, tuple(self.counts), self.sum)


Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class Family(Generic[Metric]):
    """A metric with labels; callers look a child up once and keep it."""

    __slots__ = ("_children", "_make", "label_names")

    def __init__(self, label_names: tuple[str, ...], make: Callable[[], Metric]) -> None:
        self.label_names = label_names
        self._make: Callable[[], Metric] = make
        self._children: dict[tuple[str, ...], Metric] = {}

    def labels(self, *values: str) -> Metric:
        """The child of these label values, in the order the labels were declared."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"expected a value for each of {self.label_names}, got {values}")
            child = self._children[values] = self._make()
        return child

    def remove(self, *values: str) -> None:
        """Forget a child, for example when its topic is deleted; one that does not exist is no error."""
        self._children.pop(values, None)

    def read(self) -> list[Sample]:
        return [Sample(labels, child.read()) for labels, child in self._children.items()]


class Registry:
    """All metrics of a node, by their full names."""

    def __init__(self) -> None:
        self._sources: list[Callable[[], Iterable[FamilySnapshot]]] = []
        self._names: set[str] = set()

    def counter(self, name: str, documentation: str) -> Counter:
        return self.counters(name, documentation).labels()

    def gauge(self, name: str, documentation: str) -> Gauge:
        return self.gauges(name, documentation).labels()

    def histogram(
        self, name: str, documentation: str, bounds: Sequence[float] = LATENCY_SECONDS
    ) -> Histogram:
        return self.histograms(name, documentation, bounds=bounds).labels()

    def counters(self, name: str, documentation: str, *label_names: str) -> Family[Counter]:
        return self._add(Kind.COUNTER, name, documentation, Family(label_names, Counter))

    def gauges(self, name: str, documentation: str, *label_names: str) -> Family[Gauge]:
        return self._add(Kind.GAUGE, name, documentation, Family(label_names, Gauge))

    def histograms(
        self, name: str, documentation: str, *label_names: str, bounds: Sequence[float] = LATENCY_SECONDS
    ) -> Family[Histogram]:
        return self._add(Kind.HISTOGRAM, name, documentation, Family(label_names, lambda: Histogram(bounds)))

    def computed_gauge(self, name: str, documentation: str, compute: Callable[[], float]) -> None:
        """A gauge whose value is computed at each scrape."""
        self._claim(name)

        def source() -> Iterable[FamilySnapshot]:
            return [FamilySnapshot(Kind.GAUGE, name, documentation, (), [Sample((), compute())])]

        self._sources.append(source)

    def collector(self, collect: Callable[[], Iterable[FamilySnapshot]]) -> None:
        """Several metrics computed together at each scrape.

        `collect` runs on the loop and reads what it needs there; the iterable it returns may do the rest of the work,
        and is consumed by the thread that renders.
        """
        self._sources.append(collect)

    def snapshot(self) -> list[Iterable[FamilySnapshot]]:
        """All present values. Runs on the loop that owns them; rendering the result can go elsewhere."""
        return [source() for source in self._sources]

    def _add(self, kind: Kind, name: str, documentation: str, family: Family[Metric]) -> Family[Metric]:
        self._claim(name)

        def source() -> Iterable[FamilySnapshot]:
            return [FamilySnapshot(kind, name, documentation, family.label_names, family.read())]

        self._sources.append(source)
        return family

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise ValueError(f"the metric {name} exists already")
        self._names.add(name)
