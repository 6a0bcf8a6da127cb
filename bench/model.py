"""What a benchmark run produces, as values that are written to and read from JSON."""

from dataclasses import dataclass, field
from enum import Enum
from statistics import median

GB = 1_000_000_000


class Peer(Enum):
    MILLSTREAM = "millstream"
    MOCK = "mock cluster"


@dataclass(frozen=True, slots=True)
class LatencyMs:
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One line of the driver. `stored` is what the broker's offsets say; a run that differs is refused."""

    messages: int
    bytes: int
    seconds: float
    errors: int
    stored: int
    client_cpu_seconds: float
    latency_ms: LatencyMs | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the driver and what the broker spent on it."""

    load: LoadResult
    broker_cpu_seconds: float
    broker_rss_bytes: int

    @property
    def messages_per_second(self) -> float:
        return self.load.messages / self.load.seconds

    @property
    def mb_per_second(self) -> float:
        return self.load.bytes / self.load.seconds / 1e6

    @property
    def cpu_seconds_per_gb(self) -> float:
        return self.broker_cpu_seconds / (self.load.bytes / GB)

    @property
    def cpu_seconds_per_million(self) -> float:
        return self.broker_cpu_seconds / (self.load.messages / 1e6)


@dataclass(frozen=True, slots=True)
class LoadCell:
    """The rounds of one load on one peer. Cells of the same `name` were interleaved round by round."""

    scenario: str
    name: str
    peer: Peer
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class FigureCell:
    """A measured number that is not a load: a time or a size, one value a round."""

    scenario: str
    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A cell without numbers: it does not apply here, or (failed) something went wrong."""

    scenario: str
    name: str
    reason: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Environment:
    date: str
    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    file_system: str
    driver: str
    load_average: float


@dataclass(slots=True)
class Report:
    environment: Environment
    quick: bool
    seconds: float = 0.0
    loads: list[LoadCell] = field(default_factory=list)
    figures: list[FigureCell] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def load(self, name: str, peer: Peer = Peer.MILLSTREAM) -> LoadCell | None:
        return next((cell for cell in self.loads if cell.name == name and cell.peer == peer), None)

    def figure(self, name: str) -> FigureCell | None:
        return next((cell for cell in self.figures if cell.name == name), None)
