"""Numbers that differ from query to query, kept out of the code that Spark compiles.

Spark writes a literal number into the code of a query. The same query with another number is then compiled again, and
runs cold. An array is handed to the code from outside; so a number travels in one, and is taken out for each row.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def constant(value: int, beside: "Column") -> "Column":
    """The number in every row. `beside` is any column of the rows: without one Spark would see through it."""
    from pyspark.sql import functions as f

    return f.get(f.array(f.lit(value).cast("bigint")), f.pmod(f.hash(beside), f.lit(1)))


def one_of(column: "Column", values: Iterable[int]) -> "Column":
    from pyspark.sql import functions as f

    return f.array_contains(f.array(*(f.lit(value).cast("bigint") for value in values)), column)
