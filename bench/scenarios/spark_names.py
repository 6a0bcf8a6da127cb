"""How the cells of the Spark scenario are called, and the pairs of them that are compared."""

from enum import Enum


class Source(Enum):
    MILLSTREAM = "millstream"
    CONNECTOR = "Spark's connector"
    TEXT = "text files"


class Work(Enum):
    NOOP = "to noop"
    TYPED = "JSON as typed columns to noop"
    PARQUET = "to Parquet"
    ROLLUPS = "JSON and 1-minute rollups to Parquet"


def spark_name(source: Source, work: Work) -> str:
    return f"spark, local[2], 310 B: {source.value} {work.value}"


def spark_ratio(work: Work, against: Source) -> str:
    return f"spark, local[2], 310 B, {work.value}: millstream against {against.value}"
