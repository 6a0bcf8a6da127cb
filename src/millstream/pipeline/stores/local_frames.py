"""Frames of rows that the driver has, their schemas, and numbers that differ from query to query.

Rows of the driver go by way of Arrow: Spark would send a list through Python workers and back. A literal number becomes
part of the code of a query, and the same query with another number is compiled again and runs cold. An array is handed
to the code from outside; so such a number travels in one, and is taken out for each row.
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
    """The columns as Spark wants them of an Arrow function."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema, timezone="UTC")


def constant(value: int, beside: str) -> str:
    """SQL for the number in every row. `beside` is any column of the rows: without one Spark would see through it."""
    return f"get(array(CAST({value} AS bigint)), pmod(hash({beside}), 1))"


def one_of(column: "Column", values: Iterable[int]) -> "Column":
    from pyspark.sql import functions as f

    return f.array_contains(f.array(*(f.lit(value).cast("bigint") for value in values)), column)
