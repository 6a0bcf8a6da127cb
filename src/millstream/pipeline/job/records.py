"""Telemetry as the typed source gives it: the columns of the topic, and of a record's fields one column each.

Whatever has no typed value (an envelope, an array, a number in quotes, a mistake) is read from its text by `text.py`.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from millstream.pipeline.declaration import DCGM, LABELS, Declaration
from millstream.pipeline.job.reasons import Limits

RECORD_TYPES = (
    "key binary, serializedValue binary, topic string, partition int, offset bigint, timestamp timestamp"
)
"""What is kept of a record beside its fields."""
RECORD_COLUMNS = tuple(column.split()[0] for column in RECORD_TYPES.split(", "))
READING = "struct<reason: string, field: string, message: string>"
"""Why the fields of a record could not be read."""


def record_type(declared: Declaration = DCGM) -> str:
    """The type of a record in Spark's language."""
    kinds = {
        **dict.fromkeys(declared.members(), "string"),
        **dict.fromkeys(declared.maps(), "map<string, string>"),
    }
    kinds |= {declared.fields["time"][0]: "timestamp", declared.fields["value"][0]: "double"}
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in kinds.items())}>"


def source_schema(declared: Declaration = DCGM) -> str:
    """The columns of the read."""
    return f"value {record_type(declared)}, {RECORD_TYPES}"


def typed_fields(records: DataFrame, limits: Limits) -> DataFrame:
    """RECORD_COLUMNS and the fields, null where the typed value has none; `reading` tells that there is none at all."""
    declared = limits.declaration
    fields = {name: _first(declared.fields.get(name, ()), declared) for name in ("metric", "uuid", *LABELS)}
    if declared.nested_gpu_id:
        gpu_id = f.col("value.gpu_id")
        names_gpu = ((gpu_id >= "A") & (gpu_id < "[")) | ((gpu_id >= "a") & (gpu_id < "{"))
        fields["uuid"] = f.coalesce(f.nullif(fields["uuid"], f.lit("")), f.when(names_gpu, gpu_id))
        fields["gpu_id"] = f.when(names_gpu, f.col("value.labels")["gpu"]).otherwise(gpu_id)
    fits = f"value IS NOT NULL AND octet_length(serializedValue) <= {limits.max_record_bytes}"
    return records.select(
        *RECORD_COLUMNS,
        f.lit(None).cast("int").alias("element"),
        f.col(f"value.`{declared.fields['time'][0]}`").alias("time"),
        f.col(f"value.`{declared.fields['value'][0]}`").alias("value_number"),
        *(column.alias(name) for name, column in fields.items()),
        f.expr(f"IF({fits}, NULL, struct('' AS reason, '' AS field, '' AS message))").alias("reading"),
    )


def _first(paths: Sequence[str], declared: Declaration) -> Column:
    """The first that is there; an object that is taken as a whole is its JSON."""
    found: list[Column] = []
    for path in paths:
        member, _, label = path.partition(".")
        column = f.col(f"value.`{member}`")
        if label:
            column = column[label]
        elif member in declared.maps():
            column = f.to_json(column)
        found.append(column)
    return f.coalesce(*found) if found else f.lit(None).cast("string")
