"""Frames of rows that the driver has, by way of Arrow: Spark would send a list through Python workers and back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: "SparkSession", ddl: str, rows: Sequence[Sequence[object]]) -> "DataFrame":
    """`rows` with values in the order of the columns."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    columns = [[row[number] for row in rows] for number in range(len(schema))]
    frame: DataFrame = spark.createDataFrame(pa.table(columns, schema.names), schema)
    return frame


def arrow_schema(ddl: str) -> "pa.Schema":
    """The columns as Spark wants them of an Arrow function."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return to_arrow_schema(schema, timezone="UTC")
