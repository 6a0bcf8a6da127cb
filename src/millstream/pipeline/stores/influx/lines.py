"""Line protocol as Spark SQL expressions: no Python touches a point on its way to the server.

In a measurement, a tag key or a tag value, comma, equals sign and space are escaped with a backslash. A backslash
itself cannot be: one before another character stands for itself, one at the end would escape the separator, and a line
feed would end the line. Values with these cannot be written; `problem` says so.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINT_TAGS = {
    "Hostname": "hostname",
    "container": "container",
    "device": "device",
    "gpu_id": "gpu_id",
    "labels_raw": "labels_raw",
    "modelName": "model_name",
    "namespace": "namespace",
    "pod": "pod",
    "uuid": "uuid",
}
"""Tag and column, in the order of the tags' names, which is the order the server sorts them into."""
ROLLUP_TAGS = {"hostname": "hostname", "key": "key", "level": "level", "metric": "metric"}
EVENT_TAGS = {"event_id": "event_id", "hostname": "hostname", "kind": "kind", "uuid": "uuid"}

EVENTS_MEASUREMENT = "events"


def rollups_measurement(resolution: str) -> str:
    return f"rollups_{resolution}"


def point_lines(frame: "DataFrame") -> "DataFrame":
    """`line` with its line feed, `problem`, and the columns by which a point is known."""
    from pyspark.sql import functions as f

    value = f.col("value")
    unfit = f.isnan(value) | (f.abs(value) == f.lit(float("inf")))
    problem = (
        f.when(unfit | value.isNull(), f.lit("InfluxDB stores finite numbers only"))
        .when(f.col("metric").startswith("#") | (f.col("metric") == ""), f.lit("not a name of a measurement"))
        .otherwise(_unwritable(["metric", *POINT_TAGS.values()]))
    )
    fields = f.concat(f.lit("value="), value.cast("string"))
    return frame.select(
        _line(_escaped(f.col("metric")), POINT_TAGS, fields, "time").alias("line"),
        problem.alias("problem"),
        *(f.col(name) for name in ("source_partition", "source_offset", "uuid", "metric", "time")),
    )


def rollup_lines(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    numbers = [
        f.concat(f.lit(f"{name}="), f.col(name).cast("string")) for name in ("min", "max", "mean", "p95")
    ]
    count = f.concat(f.lit("count="), f.col("count").cast("bigint").cast("string"), f.lit("i"))
    measurement = f.concat(f.lit("rollups_"), f.col("resolution"))
    line = _line(measurement, ROLLUP_TAGS, f.concat_ws(",", *numbers, count), "window_start")
    return _described(frame, line, list(ROLLUP_TAGS.values()), measurement, "window_start")


def event_lines(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    # What may change during an event's life is a field, or the change would make a second event.
    texts = [
        f.concat(f.lit(f"{name}="), _quoted(f.col(name)))
        for name in ("severity", "status", "message", "evidence")
    ]
    end = f.concat(f.lit("end="), f.unix_micros(f.col("end")).cast("string"), f.lit("i"))
    measurement = f.lit(EVENTS_MEASUREMENT)
    line = _line(measurement, EVENT_TAGS, f.concat_ws(",", end, *texts), "start")
    return _described(frame, line, list(EVENT_TAGS.values()), measurement, "start")


def _described(
    frame: "DataFrame", line: "Column", tags: list[str], measurement: "Column", time: str
) -> "DataFrame":
    """The columns of `point_lines` for rows that come from no offset."""
    from pyspark.sql import functions as f

    return frame.select(
        line.alias("line"),
        _unwritable(tags).alias("problem"),
        f.lit(-1).alias("source_partition"),
        f.lit(-1).cast("bigint").alias("source_offset"),
        f.lit("").alias("uuid"),
        measurement.alias("metric"),
        f.col(time).alias("time"),
    )


def _line(measurement: "Column", tags: Mapping[str, str], fields: "Column", time: str) -> "Column":
    from pyspark.sql import functions as f

    written = [
        # A tag without a value is not a tag.
        f.when(f.col(column) == "", f.lit("")).otherwise(f.concat(f.lit(f",{tag}="), _escaped(f.col(column))))
        for tag, column in tags.items()
    ]
    stamp = f.unix_micros(f.col(time)).cast("string")
    return f.concat(measurement, *written, f.lit(" "), fields, f.lit(" "), stamp, f.lit("\n"))


def _escaped(column: "Column") -> "Column":
    from pyspark.sql import functions as f

    for character in (",", "=", " "):
        column = f.replace(column, f.lit(character), f.lit("\\" + character))
    return column


def _quoted(column: "Column") -> "Column":
    from pyspark.sql import functions as f

    escaped = f.replace(f.replace(column, f.lit("\\"), f.lit("\\\\")), f.lit('"'), f.lit('\\"'))
    return f.concat(f.lit('"'), escaped, f.lit('"'))


def _unwritable(columns: list[str]) -> "Column":
    from pyspark.sql import functions as f

    problem = f.lit(None).cast("string")
    for name in columns:
        wrong = f.col(name).endswith("\\") | f.col(name).contains("\n")
        text = f"InfluxDB cannot store a tag with a line feed or with a backslash at its end: {name}"
        problem = f.when(wrong, f.lit(text)).otherwise(problem)
    return problem
