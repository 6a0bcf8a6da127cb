"""Valid rows as the points of a store, each identity once."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from millstream.pipeline.job.reasons import Verdict
from millstream.pipeline.stores.tables import POINTS

# Columns of a parsed row that are called otherwise in the store.
_SOURCES = {"value": "value_number", "source_partition": "partition", "source_offset": "offset"}


def points_of(rows: DataFrame) -> DataFrame:
    """The valid rows with the columns of a point, and `element` to tell records of one array apart."""

    def column(name: str, kind: str) -> str:
        source = f"CAST({_SOURCES.get(name, name)} AS {kind})"
        return f"coalesce({source}, '') AS {name}" if kind == "string" else f"{source} AS {name}"

    return rows.where(f"verdict = '{Verdict.VALID}'").selectExpr(
        *(column(name, kind) for name, kind in POINTS.columns), "coalesce(element, 0) AS element"
    )


def without_duplicates(points: DataFrame) -> DataFrame:
    """Of points with one identity the last in the log; the store keeps to the same rule between batches."""
    newest_first = Window.partitionBy(*POINTS.identity).orderBy(
        f.desc("source_partition"), f.desc("source_offset"), f.desc("element")
    )
    numbered = points.withColumn("copy", f.row_number().over(newest_first))
    return numbered.filter(f.col("copy") == 1).select(*POINTS.names)
