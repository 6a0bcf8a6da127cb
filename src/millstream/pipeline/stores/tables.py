"""The columns of the tables, as Spark DDL: what a frame given to a store must have, in any order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[tuple[str, str], ...]
    """Name and Spark type."""
    identity: tuple[str, ...]
    """Rows that agree in these are the same row; of several the last in `precedence` counts."""
    precedence: tuple[str, ...]
    time: str
    """The column that places a row in time."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)


POINTS = Table(
    "points",
    (
        ("time", "timestamp"),
        ("uuid", "string"),
        ("metric", "string"),
        ("value", "double"),
        ("gpu_id", "string"),
        ("device", "string"),
        ("model_name", "string"),
        ("hostname", "string"),
        ("container", "string"),
        ("pod", "string"),
        ("namespace", "string"),
        ("labels_raw", "string"),
        ("source_partition", "int"),
        ("source_offset", "bigint"),
    ),
    identity=("uuid", "metric", "time"),
    precedence=("source_partition", "source_offset"),
    time="time",
)

ROLLUPS = Table(
    "rollups",
    (
        ("resolution", "string"),
        ("window_start", "timestamp"),
        ("level", "string"),
        ("key", "string"),
        ("hostname", "string"),
        ("metric", "string"),
        ("min", "double"),
        ("max", "double"),
        ("mean", "double"),
        ("p95", "double"),
        ("count", "bigint"),
    ),
    identity=("resolution", "level", "key", "metric", "window_start"),
    precedence=("version",),
    time="window_start",
)

EVENTS = Table(
    "events",
    (
        ("event_id", "string"),
        ("kind", "string"),
        ("severity", "string"),
        ("uuid", "string"),
        ("hostname", "string"),
        ("start", "timestamp"),
        ("end", "timestamp"),
        ("status", "string"),
        ("message", "string"),
        ("evidence", "string"),
    ),
    identity=("event_id",),
    precedence=("version",),
    time="start",
)
