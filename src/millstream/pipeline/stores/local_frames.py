"""Frames from rows on the driver, their schemas, and constants that differ from query to query.

Rows of the driver are passed by Arrow: Spark would send a list through Python workers and back. Spark compiles literal
numbers into a query's code, so the same query with another number is compiled again and runs cold. An array is passed
to the code as data; so such a number is put into an array, and taken out for each row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def local_frame(spark: "SparkSession", ddl: str, rows: Sequence[Sequence[object]]) -> "DataFrame":
    """`rows` with values in the order of the columns."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    columns = [[row[number] for row in rows] for number in range(len(schema))]
    frame: DataFrame = spark.createDataFrame(pa.table(columns, schema.names), schema)
    return frame


def arrow_schema(ddl: str) -> pa.Schema:
    """The schema that Spark expects from an Arrow function."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema, timezone="UTC")


def constant(value: int, beside: str) -> str:
    """SQL for a constant. `beside` is any column: without one, Spark would fold the expression into a literal."""
    return f"get(array(CAST({value} AS bigint)), pmod(hash({beside}), 1))"


def one_of(column: "Column", values: Iterable[int]) -> "Column":
    from pyspark.sql import functions as f

    return f.array_contains(f.array(*(f.lit(value).cast("bigint") for value in values)), column)
